"""`cdc create`."""

from __future__ import annotations

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
from cdc_core.cli.session import FILE, CliSession, debug_option
from cdc_core.config.definition import require_references
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.jobs.creation import check_new_job, locality_of
from cdc_core.store.job_values import JobRecord
from cdc_core.store.progress import ProgressStore

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


def create_job(store: ProgressStore, feed: ResolvedChangefeed, *, owner: str) -> tuple[JobRecord, str]:
    """Make the changefeed a job; return it, and what was done as text. Raises: ConfigError, as the store does."""
    job = store.create_job(feed.name, feed.definition(), owner=owner, locality=locality_of(feed))
    return job, f"job '{job.name}' is created, its owner is {owner}; {adoption_text(store, job)}"
