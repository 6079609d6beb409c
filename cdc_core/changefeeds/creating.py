"""Making a changefeed a job, which nodes run: a new one, or what `cdc run` has begun, with another store too."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Literal

from cdc_core.changefeeds.finding import Finder, require_no_run, stopped
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
from cdc_core.engine.fencing import is_idle
from cdc_core.engine.finish import all_delivered
from cdc_core.engine.planned_queries import check_query
from cdc_core.errors import ConfigError, RetryableError, TerminalError
from cdc_core.locality import Locality
from cdc_core.remedies import fitting
from cdc_core.store.job_values import REVERTED, JobRecord
from cdc_core.store.opening import store_place
from cdc_core.store.progress import ProgressStore
from cdc_core.store.verbs import require_free
from cdc_core.telemetry.logs import logged_as


class Creating(Finder):
    """The verb create."""

    def check_new(self, feed: ResolvedChangefeed, *, connect: bool = True, left: ProgressStore | None = None) -> None:
        """Check that the changefeed can become a job; the source and the sink are checked only with *connect*.

        *left* is another store, whose progress the job will take over. Creates nothing. Raises: RefusedError if it
        already is a job; ConfigError.
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
        """Make the changefeed a job, after `check_new`; with *paused_for*, it is paused from the start.

        An ended job of this name is deleted from the store; the changefeed of an earlier `cdc run` is continued.
        Raises: as `check_new`; ConfigError if no live node matches its locality.
        """
        self.check_new(feed, connect=connect)
        return self.store.jobs.create(
            feed.name,
            feed.definition(),
            owner=owner,
            locality=locality_of(feed),
            paused_for=paused_for,
            offer_to=self._node,
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


class Continuing(Creating):
    """The verb create, also for a changefeed whose progress is in *left*, the store of its runs."""

    def check_continuing(self, feed: ResolvedChangefeed, left: ProgressStore, *, connect: bool) -> None:
        """Check that `continue_run` can move the progress here, has done so, or must be repeated; it may still refuse.

        Raises: as `check_new`.
        """
        is_here = store_place(left.url) == store_place(self.store.url)
        if not is_here and self._continuing(feed.name, left) is not None:
            return
        Finder(left).known(feed.name)
        progress = left.progress.load(feed.name)
        if progress is None:
            raise ConfigError(f"changefeed '{feed.name}' has never run with {left.shown}; remove --from-state")
        if all_delivered(feed, progress):
            raise ConfigError(f"changefeed '{feed.name}' is complete in {left.shown}: nothing is left to deliver")
        given = left.jobs.find(feed.name)
        if is_here or given is None or not given.is_leaving:
            self.check_new(feed, connect=connect, left=None if is_here else left)
            return
        try:  # a job or a run that this store has by now is left to `continue_run`, which then undoes the hand-over
            require_references(feed.stored, feed.name)
            if connect:
                _check(feed, self.store, left)
        except ConfigError as error:
            text = "its progress is being handed over, and the changefeed cannot run until this command succeeds"
            if connect:
                text += ", perhaps with --no-check"
            raise ConfigError(f"{error}; {text}") from error

    def continue_run(
        self, feed: ResolvedChangefeed, left: ProgressStore, run_dir: Path, *, again: str, owner: str
    ) -> tuple[JobRecord, bool]:
        """Make the changefeed a job that continues its runs, whose progress is in *left*, in the directory *run_dir*.

        Return the job, and whether this call created it: the command *again* repeats the call, also after a crash.
        Afterwards, no run in *left* can continue the changefeed. If *left* is this store, there is no progress to move.
        Raises: ConfigError, without changing anything, for example while a run is alive.
        """
        if store_place(left.url) == store_place(self.store.url):
            return self.create(feed, owner=owner, connect=False), True
        job = self._continuing(feed.name, left)
        created = job is None
        if job is None:
            job = self._moved(feed, left, run_dir, again=again, owner=owner)
        left.handover.arrive(feed.name)
        return job, created

    def require_not_run(self, feed: ResolvedChangefeed, left: ProgressStore, *, move: str, drop: str) -> None:
        """Check that runs with another store, *left*, have not begun the changefeed. Raises: ConfigError.

        Its remedies are the commands *move*, if the progress can be moved, and *drop*.
        """
        if store_place(left.url) == store_place(self.store.url):
            return
        job, progress = left.jobs.find(feed.name), left.progress.load(feed.name)
        if progress is None or (job is not None and job.state in REVERTED and not job.is_leaving):
            return
        if job is not None:
            raise ConfigError(left.handover.is_job(job))
        remedy = f"run `{drop}` to start again"
        if not all_delivered(feed, progress):
            remedy = f"run `{move}` to move it, or `{drop}` to start again"
        raise ConfigError(
            f"changefeed '{feed.name}' has progress in {left.shown} that a job in {self.store.shown} would not"
            f" use; {remedy}"
        )

    def _continuing(self, name: str, left: ProgressStore) -> JobRecord | None:
        """Return the job that has the progress of the run in *left*; None when there is none."""
        job, given = self.find_job(name), left.jobs.find(name)
        if job is None or job.has_left or given is None or not given.has_left:
            return None
        there, here = self.store.changefeeds.find(name), left.changefeeds.find(name)
        return job if there is not None and here is not None and there.feed_id == here.feed_id else None

    def _moved(
        self, feed: ResolvedChangefeed, left: ProgressStore, run_dir: Path, *, again: str, owner: str
    ) -> JobRecord:
        to = f"job '{feed.name}' of the store {store_place(self.store.url)}"
        over = left.jobs.find(feed.name) is not None  # a repetition: no run begins there
        with nullcontext() if over else stopped(left, feed.name, run_dir):
            if not over and not is_idle(run_dir / f"{feed.name}.tasks.lock"):
                raise ConfigError(
                    f"tasks of the last run of changefeed '{feed.name}' are still alive; wait until they end"
                )
            kept = left.handover.give(feed.name, to=to, again=again, owner=owner, repeated=over)
            try:
                return self.store.jobs.create(
                    feed.name, feed.definition(), owner=owner, locality=locality_of(feed), kept=kept
                )
            except ConfigError:
                if self._continuing(feed.name, left) is None:
                    left.handover.take_back(feed.name, kept)
                raise
            except RetryableError as error:
                text = f"repeat this command; until it succeeds, changefeed '{feed.name}' cannot run"
                raise RetryableError(f"{error}; {text}") from error
