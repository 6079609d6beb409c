"""`cdc move`, `cdc rescan` and `cdc replay-dead-letters`: having changes, tables or rows delivered again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import click

from cdc_core.changefeeds.moving import target_of, written_target
from cdc_core.changefeeds.replaying import Replayed
from cdc_core.cli.job_commands import agreed, by_user
from cdc_core.cli.located import Named, changefeed_command
from cdc_core.cli.tables import echo_table
from cdc_core.errors import ConfigError
from cdc_core.options import counted
from cdc_core.rangefeed_values import Token
from cdc_core.store.values import DeadLetter

_MAX_SHOWN = 20


@changefeed_command()
@click.option(
    "--to",
    "to",
    metavar="POSITION",
    required=True,
    help="Where to start: now, a time such as 2026-01-31T12:00:00Z, or a source position such as a PostgreSQL LSN.",
)
@click.option("--source", metavar="URI", help="If there are several sources, the one to move, as `cdc show` prints it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def move(named: Named, to: str, source: str | None, yes: bool) -> int:
    """Make the next run of the changefeed NAME in FILE start from another position in its source's history.

    Moving forward skips the changes in between: they are never delivered. Moving back delivers changes again, in order,
    as far back as the source retains them. The source determines which positions it can read from. Stop the changefeed
    first, or pause the job. `cdc events` shows the old and the new position.
    """
    session = named.session
    with named.opened(verb="move") as (changefeeds, feed, state_dir):
        target: str | Token = written_target(to)
        if source is not None:
            known = changefeeds.known(feed.name)
            target = target_of(known, {_index(known.sources, source): target})
        with changefeeds.moving(feed, target, state_dir=state_dir) as planned:
            if not planned.moves:
                click.echo(f"changefeed '{feed.name}' is already at {planned.move.before}")
                return 0
            click.echo(f"changefeed '{feed.name}' of the progress store {changefeeds.store.shown}")
            click.echo(session.masked(f"  from {planned.move.before}"))
            click.echo(session.masked(f"  to   {planned.move.after}"))
            click.echo(f"  {planned.effect}")
            if not agreed(f"Move changefeed '{feed.name}'?", yes=yes, declined="nothing was moved"):
                return 1
            changefeeds.move(planned, by_user())
    click.echo(f"changefeed '{feed.name}': the next run starts from {session.masked(planned.move.after)}")
    return 0


def _index(sources: Sequence[str], source: str) -> int:
    if source not in sources:
        raise ConfigError(f"--source {source}: the changefeed has no such source; choose one of {', '.join(sources)}")
    return sources.index(source)


@changefeed_command(has_name=False)
@click.argument("words", metavar="[NAME] TABLE", nargs=-1)
@click.option("--where", metavar="PREDICATE", help="Emit only rows that match this condition, in the source's SQL.")
@click.option("--all", "everything", is_flag=True, help="Rescan all tables of the changefeed instead of TABLE.")
@click.option(
    "--new-slot",
    is_flag=True,
    help="With --all, abandon the history that the source retains, such as that of a lost replication slot, and start a"
    " new history. Stop the changefeed first.",
)
def rescan(named: Named, words: tuple[str, ...], where: str | None, everything: bool, new_slot: bool) -> int:
    """Ask the changefeed NAME in FILE to emit all rows of TABLE again, at a consistent point, while changes continue.

    A running changefeed begins the rescan within about a second; otherwise the next run does. The request is kept in
    the progress store, so a crash does not lose it. Resolved marks wait until all rows are emitted. `cdc show` shows
    the progress.

    With --all --new-slot, a changefeed whose source has lost history continues under the same name. Rows that were
    deleted in the meantime are not emitted: `cdc show` shows the timestamp below which rows no longer exist.
    """
    name, table = _name_and_table(words, everything=everything, named=named.store is not None)
    if new_slot and not everything:
        raise ConfigError("--new-slot rescans all tables; write --all --new-slot")
    if where is not None and everything:
        raise ConfigError("--where selects rows of one table; name the table instead of --all")
    with replace(named, name=name).opened() as (changefeeds, feed, state_dir):
        if new_slot:
            changefeeds.begin_anew(feed, state_dir=state_dir)
            click.echo(
                f"changefeed '{feed.name}': the next run starts a new history at the source and emits all rows of all"
                " tables again. Rows that were deleted in the meantime are not emitted: `cdc show` shows the timestamp"
                " before which rows no longer exist"
            )
            return 0
        wanted = changefeeds.rescan(feed, table=table, where=where)
    what = "all tables" if wanted.table is None else f"table {wanted.table}"
    selected = "" if where is None else f" where {where}"
    click.echo(f"changefeed '{feed.name}': {what}{selected} will be emitted again, by the current run or the next one")
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


@changefeed_command()
@click.option("--list", "only_list", is_flag=True, help="Only list the dead letters.")
@click.option(
    "--give-up",
    "given_up",
    type=int,
    multiple=True,
    metavar="NUMBER",
    help="Discard the dead letter that --list shows with this number. May be repeated.",
)
def replay_dead_letters(named: Named, only_list: bool, given_up: tuple[int, ...]) -> int:
    """Send the dead letters of the changefeed NAME in FILE to its sink again.

    Stop the changefeed first, or pause the job. Rows with the same key are sent in order. A row that is refused again
    stays a dead letter, and the exit status is 1. If a row cannot be fixed, discard it with --give-up.
    """
    if only_list and given_up:
        raise ConfigError("--list changes nothing, and --give-up discards rows; use only one of them")
    session = named.session
    session.start_logging()
    with named.opened(by_file=not only_list) as (changefeeds, feed, state_dir):
        waiting = changefeeds.dead_letters(feed.name)
        if waiting and only_list:
            echo_table(session, [*_rows(waiting)])
            return 0
        replayed = Replayed()
        if not only_list:
            replayed = changefeeds.replay(feed.name, feed=feed, state_dir=state_dir, give_up=given_up)
    if waiting or given_up:
        for line in _told(feed.name, replayed):
            click.echo(session.masked(line))
    else:
        click.echo(f"changefeed '{feed.name}' has no dead letters")
    return 1 if replayed.kept or replayed.missing else 0


def _told(name: str, result: Replayed) -> Iterator[str]:
    up = f", {result.given_up} discarded" if result.given_up else ""
    sent, kept, missing = counted(result.sent, "row"), counted(len(result.kept), "dead letter"), result.missing
    yield f"changefeed '{name}': {sent} replayed, {kept} remaining{up}"
    for bad in result.kept[:_MAX_SHOWN]:
        yield f"  {bad} (stage {bad.stage}): {bad.shown_reason}"
    if len(result.kept) > _MAX_SHOWN:
        yield f"  and {len(result.kept) - _MAX_SHOWN} more"
    if missing:
        rows = f"{counted(missing, 'row')} {'is' if missing == 1 else 'are'}"
        yield f"{rows} missing from the dead-letter sink; --list shows them, --give-up discards them"


def _rows(waiting: Sequence[DeadLetter]) -> Iterator[tuple[str, ...]]:
    yield ("number", "refused at", "table", "key", "updated", "stage", "error")
    for letter in waiting:
        moment = "" if letter.refused_at is None else letter.refused_at.strftime("%Y-%m-%d %H:%M:%SZ")
        yield (str(letter.number), moment, letter.table, letter.key, str(letter.updated), letter.stage, letter.error)
