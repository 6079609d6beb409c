"""`cdc create`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import click

from cdc_core.cli.job_commands import (
    adoption_text,
    echo_job,
    job_store,
    job_store_option,
    json_option,
    require_owner,
    user_name,
)
from cdc_core.cli.run import find_changefeed, names_in, resolved
from cdc_core.cli.session import CliSession, debug_option
from cdc_core.config.definition import require_references
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.checks import check_dead_letters, check_delivery, check_sink, check_source, check_time_range
from cdc_core.engine.planned_queries import check_query
from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.store.job_values import FINISHED, JobRecord
from cdc_core.store.liveness import is_alive
from cdc_core.store.progress import ProgressStore

__all__ = ["check_job", "check_new_job", "create", "create_job", "locality_of"]


@click.command(short_help="Create a job: a changefeed that nodes run.")
@click.argument("file", metavar="FILE")
@click.argument("name", required=False)
@click.option("--owner", metavar="USER", help="Whose job it is. Default: the user of this process.")
@click.option("--no-check", is_flag=True, help="Do not connect to the source and the sink.")
@job_store_option
@json_option
@debug_option
@click.pass_obj
def create(
    session: CliSession,
    file: str,
    name: str | None,
    owner: str | None,
    no_check: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Make the changefeed NAME in FILE a job, which a node runs from now on; without NAME, all changefeeds of the file.

    FILE may also be the name of a pipeline that an installed package publishes. The store keeps the definition, with
    references such as ${PASSWORD} in place of secrets; each node resolves them from its own environment and files. A
    changefeed that `cdc run` has run with this store continues where it stopped.
    """
    feeds = [resolved(session, find_changefeed(file, each)[0]) for each in names_in(file, name, None)]
    owner = require_owner(user_name() if owner is None else owner)
    for feed in feeds:
        require_references(feed.stored, feed.name)
    with job_store(session, store, create=True) as opened:
        for feed in feeds:
            check_new_job(opened, feed, connect=not no_check)
        for feed in feeds:
            job, text = create_job(opened, feed, owner=owner)
            echo_job(session, opened, job, text, as_json=as_json)
    return 0


def check_new_job(store: ProgressStore, feed: ResolvedChangefeed, *, connect: bool = True) -> None:
    """Return when the changefeed can become a job; its source and sink are not asked unless *connect*.

    Raises: ConfigError. Creates nothing.
    """
    require_references(feed.stored, feed.name)
    _require_free(store, feed.name)
    if connect:
        _check(feed, store)


def create_job(store: ProgressStore, feed: ResolvedChangefeed, *, owner: str) -> tuple[JobRecord, str]:
    """Make the changefeed a job; return it, and what was done as text. Raises: ConfigError, as the store does."""
    job = store.create_job(feed.name, feed.definition(), owner=owner, locality=locality_of(feed))
    return job, f"job '{job.name}' is created, its owner is {owner}; {adoption_text(store, job)}"


def locality_of(feed: ResolvedChangefeed) -> Locality:
    """Return what the option execution_locality says."""
    return Locality.parse(feed.options.execution_locality or "")


def check_job(feed: ResolvedChangefeed) -> None:
    """Return when the source can be read and rows of it be delivered. Raises: ConfigError. Creates nothing."""
    schemas = check_source(feed)
    if not feed.queries().exist:
        check_delivery(feed, schemas)
        return
    check_query(feed, schemas)  # what its rows are, only a node's Spark can tell
    check_sink(feed, schemas)
    check_dead_letters(feed, schemas)


def _check(feed: ResolvedChangefeed, store: ProgressStore) -> None:
    """Return when the changefeed can begin, or continue where a `cdc run` stopped. Raises: ConfigError."""
    known = None if store.find_job(feed.name) else store.find(feed.name)
    progress = None if known is None else store.load(feed.name)
    if known is None or progress is None:
        check_job(feed)
        check_time_range(feed)
    else:
        check_job(replace(feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch), saved=progress.token))


def _require_free(store: ProgressStore, name: str) -> None:
    """Return if nothing runs the changefeed. Raises: ConfigError."""
    job = store.find_job(name)
    if job is not None and job.state not in FINISHED:
        raise ConfigError(f"changefeed '{name}' is a job already ({job.state}); choose another name")
    status = store.status(name)
    if job is None and status is not None and is_alive(status, now=datetime.now(UTC)):
        raise ConfigError(
            f"changefeed '{name}' is running on {status.values.get('host')} (process {status.values.get('pid')}), by"
            " `cdc run`; stop it first, or wait half a minute if it was killed"
        )
