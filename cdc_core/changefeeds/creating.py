"""Making a changefeed a job, which nodes run."""

from __future__ import annotations

from typing import Literal

from cdc_core.changefeeds.finding import Finder, require_no_run
from cdc_core.config.definition import require_references
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.checks import (
    as_stored,
    check_dead_letters,
    check_delivery,
    check_sink,
    check_source,
    check_time_range,
)
from cdc_core.engine.planned_queries import check_query
from cdc_core.errors import ConfigError, TerminalError
from cdc_core.locality import Locality
from cdc_core.remedies import fitting
from cdc_core.store.job_values import JobRecord
from cdc_core.store.progress import ProgressStore
from cdc_core.store.verbs import require_free
from cdc_core.telemetry.logs import logged_as

__all__ = ["Creating", "check_job", "locality_of"]


class Creating(Finder):
    """The verb create."""

    def check_new(self, feed: ResolvedChangefeed, *, connect: bool = True, left: ProgressStore | None = None) -> None:
        """Return when the changefeed can become a job; its source and sink are not asked unless *connect*.

        *left* is another store, whose progress it is to have. Raises: RefusedError while it is a job; ConfigError.
        Creates nothing.
        """
        require_references(feed.stored, feed.name)
        job = self.store.jobs.find(feed.name)
        require_free(job)
        if job is None:
            require_no_run(self.store, feed.name)
        if connect:
            _check(feed, self.store, left)

    def create(
        self,
        feed: ResolvedChangefeed,
        *,
        owner: str,
        connect: bool = True,
        paused_for: Literal["pause", "stop"] | None = None,
    ) -> JobRecord:
        """Make the changefeed a job, after `check_new`; with *paused_for* it is paused from the first moment.

        What an ended job of this name has left in the store is forgotten; a changefeed that a `cdc run` has left is
        continued. Raises: as `check_new`; ConfigError when no living node matches its locality.
        """
        self.check_new(feed, connect=connect)
        return self.store.jobs.create(
            feed.name, feed.definition(), owner=owner, locality=locality_of(feed), paused_for=paused_for
        )


def locality_of(feed: ResolvedChangefeed) -> Locality:
    """Return what the option execution_locality says."""
    return Locality.parse(feed.options.execution_locality or "")


def check_job(feed: ResolvedChangefeed, *, job: bool = True) -> None:
    """Return when the source can be read and rows of it be delivered. Creates nothing.

    Raises: ConfigError, whose remedies are for a *job*, or else for a changefeed of a file.
    """
    with logged_as(feed.name):
        try:
            schemas = check_source(feed)
        except TerminalError as error:  # it has begun, and cannot continue
            raise ConfigError(fitting(str(error), feed.name, job=job)) from error
        if not feed.queries().exist:
            check_delivery(feed, schemas)
            return
        check_query(feed, schemas)  # what its rows are, only a node's Spark can tell
        check_sink(feed, schemas)
        check_dead_letters(feed, schemas)


def _check(feed: ResolvedChangefeed, store: ProgressStore, left: ProgressStore | None) -> None:
    """Return when the changefeed can begin, or continue where a `cdc run` stopped. Raises: ConfigError."""
    if left is None and store.jobs.find(feed.name) is None and store.progress.load(feed.name) is not None:
        left = store
    check_job(feed if left is None else as_stored(feed, left), job=False)
    if left is None:
        check_time_range(feed)
