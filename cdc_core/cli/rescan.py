"""`cdc rescan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from cdc_core.cli.located import Named, changefeed_command
from cdc_core.errors import ConfigError


@changefeed_command(has_name=False)
@click.argument("words", metavar="[NAME] TABLE", nargs=-1)
@click.option("--where", metavar="PREDICATE", help="Only the rows that this selects, in the source's SQL.")
@click.option("--all", "everything", is_flag=True, help="All tables of the changefeed, in place of TABLE.")
@click.option(
    "--new-slot",
    is_flag=True,
    help="With --all: give up the history that the source retains, such as a replication slot that was lost, and begin"
    " a new one. The changefeed must not be running.",
)
def rescan(named: Named, words: tuple[str, ...], where: str | None, everything: bool, new_slot: bool) -> int:
    """Ask the changefeed NAME in FILE to emit all rows of TABLE again, at a consistent point, while changes continue.

    A running changefeed begins within about a second; otherwise the next run does. The request is in the progress
    store, and a crash does not lose it. Resolved marks wait until all rows were emitted. `cdc show` tells how far it
    is.

    With --all --new-slot, a changefeed whose source has lost history continues under its name. What was deleted in
    the meantime is not emitted: `cdc show` tells the timestamp below which rows no longer exist.
    """
    name, table = _name_and_table(words, everything=everything, named=named.store is not None)
    if new_slot and not everything:
        raise ConfigError("--new-slot reads all tables again; write --all --new-slot")
    if where is not None and everything:
        raise ConfigError("--where selects rows of one table; name the table in place of --all")
    with replace(named, name=name).opened() as (changefeeds, feed, state_dir):
        if new_slot:
            changefeeds.begin_anew(feed, state_dir=state_dir)
            click.echo(
                f"changefeed '{feed.name}': the next run begins a new history at the source and emits all rows of all"
                f" tables again. Rows that were deleted meanwhile are not emitted: `cdc show` then tells the timestamp"
                " below which rows no longer exist"
            )
            return 0
        wanted = changefeeds.rescan(feed, table=table, where=where)
    what = "all tables" if wanted.table is None else f"table {wanted.table}"
    selected = "" if where is None else f" where {where}"
    click.echo(
        f"changefeed '{feed.name}': {what}{selected} will be emitted again, by a run that is alive or the next one"
    )
    return 0


def _name_and_table(words: Sequence[str], *, everything: bool, named: bool) -> tuple[str | None, str | None]:
    """Return what *words* after FILE say; *named* if FILE is the name of the changefeed. Raises: ConfigError."""
    most = (0 if named else 1) + (0 if everything else 1)
    if len(words) > most or (not words and not everything):
        given = "NAME" if named else "[NAME]"
        form = f"--store URL {given}" if named else f"FILE {given}"
        raise ConfigError(f"write `cdc rescan {form} TABLE`, or `cdc rescan {form} --all`")
    names, table = (list(words), None) if everything else (list(words[:-1]), words[-1])
    return (names[0] if names else None), table
