"""`cdc create`."""

from __future__ import annotations

from shlex import join

import click
from click.core import ParameterSource

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.completion import complete_name
from cdc_core.cli.job_commands import (
    adoption_text,
    changefeeds_at,
    echo_job,
    job_store_option,
    require_owner,
    user_name,
)
from cdc_core.cli.located import find_changefeed, names_in, progress_at, resolved, state_of
from cdc_core.cli.session import FILE, CliSession, debug_option, json_option
from cdc_core.config.definition import require_references
from cdc_core.errors import ConfigError
from cdc_core.masking import masked_uri
from cdc_core.store.job_values import JobRecord
from cdc_core.store.progress import ProgressStore


@click.command
@click.argument("file", metavar="FILE", type=FILE)
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("--owner", metavar="USER", help="Whose job it is. Default: the user of this process.")
@click.option("--no-check", is_flag=True, help="Do not connect to the source and the sink.")
@click.option(
    "--from-state",
    metavar="[DIR|URL]",
    is_flag=False,
    flag_value="",
    help="Continue where `cdc run` stopped: move its progress from this store, by default .cdc beside FILE. Put it"
    " last.",
)
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
    from_state: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Make the changefeed NAME in FILE a job, which a node runs from now on; without NAME, all changefeeds of the file.

    FILE may also be the name of a pipeline that an installed package publishes. The store keeps the definition, with
    references such as ${PASSWORD} in place of secrets; each node resolves them from its own environment and files. A
    changefeed that `cdc run` has run with this store continues where it stopped, and with --from-state also one that it
    has run with another store. Stop that run first.
    """
    found = [find_changefeed(file, each) for each in names_in(file, name)]
    feeds = [resolved(session, changefeed) for changefeed, _ in found]
    session.typed |= {feed.name: join([file, feed.name]) for feed in feeds}
    owner = require_owner(user_name() if owner is None else owner)
    for feed in feeds:
        require_references(feed.stored, feed.name)
    run, url = state_of(found[0][1], from_state or None)
    session.mask_uri(url)
    is_given = click.get_current_context().get_parameter_source("store") is ParameterSource.COMMANDLINE
    options = ["--store", masked_uri(store)] if store and is_given else []
    options.append(f"--from-state={masked_uri(from_state)}" if from_state else "--from-state")
    again = {feed.name: join(["cdc", "create", file, feed.name, *options]) for feed in feeds}
    with changefeeds_at(session, store, create=True) as service, progress_at(url) as left:
        if from_state is not None and left is None:
            raise ConfigError(
                f"there is no progress store of a run in {ProgressStore(url).shown}; name its store with --from-state"
                " DIR|URL"
            )
        giver = None if from_state is None else left
        for feed in feeds:
            if giver is not None:
                service.check_continuing(feed, giver, connect=not no_check)
                continue
            if left is not None:
                drop = join(["cdc", "drop", file, feed.name])
                service.require_not_run(feed, left, move=again[feed.name], drop=drop)
            service.check_new(feed, connect=not no_check)
        for feed in feeds:
            created = True
            if giver is None:
                job = service.create(feed, owner=owner, connect=False)
            else:
                job, created = service.continue_run(feed, giver, run, again=again[feed.name], owner=owner)
            text = created_text(service, job) if created else f"job '{job.name}' has the progress of its run already"
            echo_job(session, service, job, text, as_json=as_json)
    return 0


def created_text(changefeeds: Changefeeds, job: JobRecord) -> str:
    """Return who owns the new job, and who runs it."""
    return f"job '{job.name}' is created, its owner is {job.owner}; {adoption_text(changefeeds, job)}"
