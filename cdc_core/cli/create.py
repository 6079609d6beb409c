"""`cdc create` and `cdc alter`."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import join

import click
from click.core import ParameterSource

from cdc_core.changefeeds.altering import Altered
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.completion import complete_name
from cdc_core.cli.job_commands import (
    adoption_text,
    by_user,
    changefeeds_at,
    echo_job,
    job_store_option,
    require_owner,
    user_name,
)
from cdc_core.cli.located import (
    Named,
    changefeed_command,
    find_changefeed,
    names_in,
    opened,
    progress_at,
    resolved,
    state_of,
)
from cdc_core.cli.session import FILE, CliSession, debug_option, json_option
from cdc_core.config.alteration import Alteration
from cdc_core.config.definition import require_references
from cdc_core.errors import ConfigError
from cdc_core.masking import masked_uri
from cdc_core.store.job_values import RESTING, JobRecord
from cdc_core.store.progress import ProgressStore


@click.command
@click.argument("file", metavar="FILE", type=FILE)
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("--owner", metavar="USER", help="Owner of the job. Default: the user of this process.")
@click.option("--no-check", is_flag=True, help="Do not connect to the source and the sink.")
@click.option(
    "--from-state",
    metavar="[DIR|URL]",
    is_flag=False,
    flag_value="",
    help="Continue where `cdc run` stopped: move its progress from this store. Without a value: .cdc beside FILE. Must"
    " be the last option.",
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
    """Turn the changefeed NAME in FILE into a job that nodes run; without NAME, do so for all changefeeds in the file.

    FILE may also be the name of a pipeline that an installed package publishes. The store keeps the definition, with
    references such as ${PASSWORD} instead of secrets; each node resolves them from its own environment and files. A
    changefeed that `cdc run` ran with this store continues where it stopped. If it ran with another store, use
    --from-state. Stop `cdc run` first.
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
            text = created_text(service, job) if created else f"job '{job.name}' already has the progress of its run"
            echo_job(session, service, job, text, as_json=as_json)
    return 0


def created_text(changefeeds: Changefeeds, job: JobRecord) -> str:
    """Return who owns the new job, and who runs it."""
    return f"job '{job.name}' is created and owned by {job.owner}; {adoption_text(changefeeds, job)}"


@changefeed_command()
@click.option("--add", metavar="TABLE", multiple=True, help="Add this entry to 'tables'. May be repeated.")
@click.option("--drop", metavar="TABLE", multiple=True, help="Remove this entry from 'tables'. May be repeated.")
@click.option(
    "--set",
    "assignments",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set this option, Spark property, sink or format of a job. May be repeated.",
)
@click.option("--unset", metavar="NAME", multiple=True, help="Unset this option or Spark property of a job.")
@click.option(
    "--initial-scan/--no-initial-scan",
    "scan",
    default=None,
    help="Whether to emit the existing rows of added tables. Default: as the initial_scan option says.",
)
@json_option
def alter(
    named: Named,
    add: Sequence[str],
    drop: Sequence[str],
    assignments: tuple[str, ...],
    unset: tuple[str, ...],
    scan: bool | None,
    as_json: bool,
) -> int:
    """Change the tables of the changefeed NAME, in its definition in the progress store. Stop the changefeed first.

    The next run with --store scans the added tables while it follows the others, and skips the dropped ones, whose rows
    stay at the sink. A run from FILE uses the list in the file: change it there too.

    For a job, FILE is the name of the job in the store given by --store or the environment variable CDC_STORE. The
    changes apply to a running job after its current step. A failed job runs again; a paused job stays paused. The
    source cannot be changed. Once the job has started, the type of its sink and the options cursor, end_time and
    initial_scan cannot be changed either. If a node is just starting the job, pause the job before you alter it.
    """
    change = Alteration.parse(add=add, drop=drop, assignments=assignments, unset=unset)
    if not str(change):
        raise ConfigError(
            "nothing to alter; name tables to add or drop, such as --add public.orders --drop public.carts; for a "
            "job, also options to --set or --unset"
        )
    if scan is not None and not add:
        raise ConfigError("--initial-scan and --no-initial-scan require --add")
    session = named.session
    if named.store is not None:
        with changefeeds_at(session, named.store) as changefeeds:
            name, *_ = named.place()
            changefeeds.known(name)
            if changefeeds.find_job(name) is not None:
                altered = changefeeds.alter(name, change, by=by_user(), scans=scan)
                text = altered_text(changefeeds, altered)
                echo_job(session, changefeeds, altered.job, text, as_json=as_json)
                return 0
    if assignments or unset or as_json:
        raise ConfigError("--set, --unset and --json are for jobs; the options of other changefeeds are in their files")
    changefeed, state_dir, url, _ = named.located()
    with opened(session, url, changefeed.name, by_name=named.store is not None) as changefeeds:
        changefeeds.find_job(changefeed.name, by_file=True)
        tables = changefeeds.alter_run(changefeed, change, state_dir=state_dir, by=by_user(), scans=scan).tables
    click.echo(f"changefeed '{changefeed.name}': from the next run on, its tables are {', '.join(tables)}")
    if named.store is None and set(changefeed.tables) != set(tables):
        click.echo(
            f"{named.file} lists other tables: change 'tables' there too, because a run from the file uses its list"
        )
    return 0


def altered_text(changefeeds: Changefeeds, altered: Altered) -> str:
    """Return what was done to a job, and what becomes of it."""
    job = altered.job
    if job.pending is not None:
        continues = f"node {job.node} finishes the running step first"
    elif job.state in RESTING:
        continues = f"continue it with `cdc resume {job.name}`"
    else:
        continues = adoption_text(changefeeds, job)
    tables = f"\nits tables are {', '.join(altered.tables)}" if altered.tables else ""
    done = "is altered" if altered.is_new else "is unchanged: this change was already made"
    if job.pending is not None and not altered.is_new:
        done = "is unchanged: this change was already requested"
    return f"job '{job.name}' {done}: {altered.change}; {continues}{tables}"
