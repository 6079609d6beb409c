"""`cdc alter`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

import click

from cdc_core.cli.alter_job import alter_job
from cdc_core.cli.completion import complete_name
from cdc_core.cli.job_commands import echo_job, find_job, job_store, json_option
from cdc_core.cli.run import located, resolved
from cdc_core.cli.session import FILE, CliSession, debug_option
from cdc_core.cli.stopped import stopped
from cdc_core.cli.stored import require_known, require_one_name, state_option, store_option, store_or_environment
from cdc_core.config.alteration import Alteration, changed_tables, remaining_sections, without_option
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.interpolation import escaped
from cdc_core.config.listed_tables import own_name
from cdc_core.engine.checks import as_stored, check_source
from cdc_core.engine.planned_queries import check_query
from cdc_core.errors import ConfigError
from cdc_core.masking import secret_forms, uri_secrets
from cdc_core.queries.selection import Selection
from cdc_core.store.progress import ProgressStore

__all__ = ["alter"]


@click.command
@click.argument("file", metavar="FILE", type=FILE)
@click.argument("name", required=False, shell_complete=complete_name)
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
@state_option
@store_option
@json_option
@debug_option
@click.pass_obj
def alter(
    session: CliSession,
    file: str,
    name: str | None,
    add: Sequence[str],
    drop: Sequence[str],
    assignments: tuple[str, ...],
    unset: tuple[str, ...],
    scan: bool | None,
    state: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Change the tables of the changefeed NAME, in its definition in the progress store. Stop the changefeed first.

    The next run with --store scans the added tables while it follows the others, and leaves out the dropped ones; what
    these have at the sink stays there. A run from FILE takes the list in the file: change it there too.

    A job has only a name: FILE is the name then, in the store that --store or the environment variable CDC_STORE names.
    One that runs continues with the changes after the running step. One that an error has stopped runs again; one that
    was paused stays so. Its source, the type of its sink, and the options cursor, end_time and initial_scan cannot be
    changed.
    """
    change = Alteration.parse(add=add, drop=drop, assignments=assignments, unset=unset)
    if not str(change):
        raise ConfigError(
            "name the tables to add or to drop, such as --add public.orders --drop public.carts; of a job, also options"
            " to --set or to --unset"
        )
    if scan is not None and not add:
        raise ConfigError("--initial-scan and --no-initial-scan are about added tables; name them with --add")
    store = store_or_environment(file, state, store)
    if store is not None:
        require_one_name(name, state)
        with job_store(session, store) as opened:
            require_known(opened, file, option="--store")
            job = find_job(opened, file, by_store=True, verb="alter")
            if job is not None:
                scans = {} if scan is None else dict.fromkeys(add, scan)
                altered, text = alter_job(session, opened, job, change, scans=scans)
                echo_job(session, opened, altered, text, as_json=as_json)
                return 0
    if assignments or unset or as_json:
        raise ConfigError("--set, --unset and --json are for jobs; the options of other changefeeds are in their files")
    changefeed, state_dir, url, _ = located(session, file, name, state=state, store=store)
    feed = resolved(session, changefeed)
    session.add_secrets(secret_forms(uri_secrets(url)))
    with closing(ProgressStore(url)) as progress, ExitStack() as stack:
        require_known(progress, feed.name, option="--state" if store is None else "--store")
        find_job(progress, feed.name, by_store=False)
        stack.enter_context(stopped(progress, feed.name, state_dir))
        known = require_known(progress, feed.name, option="--state" if store is None else "--store")
        if progress.progress.load(feed.name) is None:
            raise ConfigError(f"changefeed '{feed.name}' has not begun yet; change 'tables' in its file")
        if not feed.rangefeed.registration.changes_tables:
            raise ConfigError(f"{feed.rangefeed.owner} cannot change the tables of a changefeed that has begun")
        before = known.definition["tables"]
        add, drop = ([own_name(table, feed.sources[0]) for table in tables] for tables in (add, drop))
        tables = changed_tables(before, add, drop)
        feed = resolved(session, _with_tables(changefeed, before, tables))
        schemas = check_source(as_stored(feed, progress))
        check_query(feed, schemas)
        chosen = {
            table: wanted for table, wanted in progress.rescans.initial_scans(feed.name).items() if table in tables
        }
        chosen |= {} if scan is None else dict.fromkeys(add, scan)
        progress.rescans.choose_initial_scans(feed.name, known.epoch, chosen)
        progress.changefeeds.register(feed.name, feed.definition(), changes_tables=True)
    click.echo(f"changefeed '{feed.name}' has the tables {', '.join(tables)} from its next run on")
    if store is None and set(changefeed.tables) != set(tables):
        click.echo(f"{file} lists others: change 'tables' there too, because a run from the file takes its list")
    return 0


def _with_tables(changefeed: Changefeed, before: Sequence[str], tables: Sequence[str]) -> Changefeed:
    """Return *changefeed* with *tables*, and without what was for others: sections, and the key of their masks."""
    sections, written = remaining_sections(changefeed.table, before, tables), changefeed.written
    hashed = any(Selection.parse(table, section).hashes for table, section in sections.items())
    options = changefeed.options if hashed else without_option(changefeed.options, "mask_key")
    if written is not None:
        written = {**written, "tables": escaped(list(tables))}
        if "table" in written:
            written["table"] = remaining_sections(written["table"], before, tables)
        if "options" in written and not hashed:
            written["options"] = without_option(written["options"], "mask_key")
    return replace(changefeed, tables=tuple(tables), table=sections, options=options, written=written)
