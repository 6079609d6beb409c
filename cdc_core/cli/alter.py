"""`cdc alter`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import click

from cdc_core.cli.run import located, resolved
from cdc_core.cli.session import CliSession, debug_option
from cdc_core.cli.stopped import stopped
from cdc_core.cli.stored import require_known, store_option
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.interpolation import escaped
from cdc_core.engine.checks import check_source, with_saved
from cdc_core.errors import ConfigError
from cdc_core.masking import secret_forms, uri_secrets
from cdc_core.options import did_you_mean
from cdc_core.store.progress import ProgressStore

__all__ = ["alter"]


@click.command(short_help="Add tables to a changefeed, and remove some.")
@click.argument("file", metavar="FILE")
@click.argument("name", required=False)
@click.option("--add", metavar="TABLE", multiple=True, help="Add this entry to 'tables'. May be repeated.")
@click.option("--drop", metavar="TABLE", multiple=True, help="Remove this entry of 'tables'. May be repeated.")
@click.option(
    "--initial-scan/--no-initial-scan",
    "scan",
    default=None,
    help="Whether to emit the rows that added tables hold. Default: what the option initial_scan says.",
)
@click.option(
    "--state",
    metavar="DIR|URL",
    help="Where progress is stored: a directory, or the SQLAlchemy URL of a database. Default: .cdc beside FILE.",
)
@store_option
@debug_option
@click.pass_obj
def alter(
    session: CliSession,
    file: str,
    name: str | None,
    add: tuple[str, ...],
    drop: tuple[str, ...],
    scan: bool | None,
    state: str | None,
    store: str | None,
) -> int:
    """Change the tables of the changefeed NAME, in its definition in the progress store. Stop the changefeed first.

    The next run with --store scans the added tables while it follows the others, and leaves out the dropped ones; what
    these have at the sink stays there. A run from FILE takes the list in the file: change it there too.
    """
    if not add and not drop:
        raise ConfigError("name the tables to add or to drop, such as --add public.orders --drop public.carts")
    if scan is not None and not add:
        raise ConfigError("--initial-scan and --no-initial-scan are about added tables; name them with --add")
    changefeed, state_dir, url, _ = located(session, file, name, state=state, store=store)
    feed = resolved(session, changefeed)
    session.add_secrets(secret_forms(uri_secrets(url)))
    with closing(ProgressStore(url)) as progress, stopped(progress, feed.name, state_dir):
        known = require_known(progress, feed.name, option="--state" if store is None else "--store")
        if progress.load(feed.name) is None:
            raise ConfigError(f"changefeed '{feed.name}' has not begun yet; change 'tables' in its file")
        if not feed.rangefeed.registration.changes_tables:
            raise ConfigError(f"{feed.rangefeed.owner} cannot change the tables of a changefeed that has begun")
        tables = _changed(known.definition["tables"], add, drop)
        feed = resolved(session, _with_tables(changefeed, tables))
        check_source(with_saved(feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch), progress))
        chosen = {table: wanted for table, wanted in progress.initial_scans(feed.name).items() if table not in drop}
        chosen |= {} if scan is None else dict.fromkeys(add, scan)
        progress.choose_initial_scans(feed.name, chosen)
        progress.register(feed.name, feed.definition(), changes_tables=True)
    click.echo(f"changefeed '{feed.name}' has the tables {', '.join(tables)} from its next run on")
    if store is None and set(changefeed.tables) != set(tables):
        click.echo(f"{file} lists others: change 'tables' there too, because a run from the file takes its list")
    return 0


def _changed(tables: Sequence[str], add: Sequence[str], drop: Sequence[str]) -> list[str]:
    """Return *tables* with and without those. Raises: ConfigError."""
    for table in drop:
        if table not in tables:
            raise ConfigError(f"the changefeed has no table '{table}'{did_you_mean(table, tables)}")
    for table in add:
        if table in tables and table not in drop:
            raise ConfigError(f"the changefeed has the table '{table}' already")
    changed = [table for table in tables if table not in drop]
    changed += [table for table in dict.fromkeys(add) if table not in changed]
    if not changed:
        raise ConfigError("no table would be left; to end the changefeed, use `cdc drop`")
    return changed


def _with_tables(changefeed: Changefeed, tables: Sequence[str]) -> Changefeed:
    written = changefeed.written and {**changefeed.written, "tables": escaped(list(tables))}
    return replace(changefeed, tables=tuple(tables), written=written)
