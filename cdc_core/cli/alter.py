"""`cdc alter`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cdc_core.changefeeds.altering import Altered
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.job_commands import adoption_text, by_user, changefeeds_at, echo_job
from cdc_core.cli.located import Named, changefeed_command, opened
from cdc_core.cli.session import json_option
from cdc_core.config.alteration import Alteration
from cdc_core.errors import ConfigError
from cdc_core.store.job_values import RESTING


@changefeed_command()
@click.option("--add", metavar="TABLE", multiple=True, help="Add this entry to 'tables'. May be repeated.")
@click.option("--drop", metavar="TABLE", multiple=True, help="Remove this entry of 'tables'. May be repeated.")
@click.option(
    "--set",
    "assignments",
    metavar="NAME=VALUE",
    multiple=True,
    help="Of a job, set this option, Spark property, sink or format. May be repeated.",
)
@click.option("--unset", metavar="NAME", multiple=True, help="Of a job, unset this option or Spark property.")
@click.option(
    "--initial-scan/--no-initial-scan",
    "scan",
    default=None,
    help="Whether to emit the rows that added tables hold. Default: what the option initial_scan says.",
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

    The next run with --store scans the added tables while it follows the others, and leaves out the dropped ones; what
    these have at the sink stays there. A run from FILE takes the list in the file: change it there too.

    A job has only a name: FILE is the name then, in the store that --store or the environment variable CDC_STORE names.
    One that runs continues with the changes after the running step. One that an error has stopped runs again; one that
    was paused stays so. Its source cannot be changed; once it has begun, neither can the type of its sink, nor the
    options cursor, end_time and initial_scan. While a node begins with it, pause it for that.
    """
    change = Alteration.parse(add=add, drop=drop, assignments=assignments, unset=unset)
    if not str(change):
        raise ConfigError(
            "name the tables to add or to drop, such as --add public.orders --drop public.carts; of a job, also options"
            " to --set or to --unset"
        )
    if scan is not None and not add:
        raise ConfigError("--initial-scan and --no-initial-scan are about added tables; name them with --add")
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
    click.echo(f"changefeed '{changefeed.name}' has the tables {', '.join(tables)} from its next run on")
    if named.store is None and set(changefeed.tables) != set(tables):
        click.echo(f"{named.file} lists others: change 'tables' there too, because a run from the file takes its list")
    return 0


def altered_text(changefeeds: Changefeeds, altered: Altered) -> str:
    """Return what was done to a job, and what becomes of it."""
    job = altered.job
    if job.pending is not None:
        continues = f"node {job.node} finishes the running step before that"
    elif job.state in RESTING:
        continues = f"continue it with `cdc resume {job.name}`"
    else:
        continues = adoption_text(changefeeds, job)
    tables = f"\nits tables are {', '.join(altered.tables)}" if altered.tables else ""
    done = "is altered" if altered.is_new else "is unchanged, as it has this already"
    if job.pending is not None and not altered.is_new:
        done = "has been asked for this already"
    return f"job '{job.name}' {done}: {altered.change}; {continues}{tables}"
