"""`cdc create`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import join

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
from cdc_core.cli.run import find_changefeed, names_in, progress_at, resolved, state_of
from cdc_core.cli.session import FILE, CliSession, debug_option
from cdc_core.config.definition import require_references
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError
from cdc_core.jobs.creation import check_new_job, locality_of
from cdc_core.store.job_values import JobRecord
from cdc_core.store.progress import ProgressStore, sqlite_file, store_url

__all__ = ["create", "create_job"]


@click.command
@click.argument("file", metavar="FILE", type=FILE)
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
    found = [find_changefeed(file, each) for each in names_in(file, name, None)]
    feeds = [resolved(session, changefeed) for changefeed, _ in found]
    owner = require_owner(user_name() if owner is None else owner)
    for feed in feeds:
        require_references(feed.stored, feed.name)
    with job_store(session, store, create=True) as opened:
        _require_not_run(file, feeds, opened, run=state_of(found[0][1], None)[0])
        for feed in feeds:
            check_new_job(opened, feed, connect=not no_check)
        for feed in feeds:
            job, text = create_job(opened, feed, owner=owner)
            echo_job(session, opened, job, text, as_json=as_json)
    return 0


def _require_not_run(file: str, feeds: Sequence[ResolvedChangefeed], store: ProgressStore, *, run: Path) -> None:
    """Return when no changefeed of *file* has begun with the store in directory *run*, unless that is *store*.

    Raises: ConfigError.
    """
    if (path := sqlite_file(store.url)) is not None and path.resolve().parent == run.resolve():
        return
    with progress_at(store_url(run)) as other:
        for feed in feeds:
            if other is not None and other.load(feed.name) is not None:
                raise ConfigError(
                    f"changefeed '{feed.name}' has begun with the progress store {other.shown}, and a job in"
                    f" {store.shown} would not continue it; create the job with --store {run}, or run `cdc drop"
                    f" {join([file, feed.name])}` first, to deliver all rows again, or use another name"
                )


def create_job(store: ProgressStore, feed: ResolvedChangefeed, *, owner: str) -> tuple[JobRecord, str]:
    """Make the changefeed a job; return it, and what was done as text. Raises: ConfigError, as the store does."""
    job = store.create_job(feed.name, feed.definition(), owner=owner, locality=locality_of(feed))
    return job, f"job '{job.name}' is created, its owner is {owner}; {adoption_text(store, job)}"
