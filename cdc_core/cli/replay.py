"""`cdc replay-dead-letters`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from cdc_core.changefeeds.replaying import Replayed
from cdc_core.cli.located import Named, changefeed_command
from cdc_core.cli.tables import echo_table
from cdc_core.errors import ConfigError
from cdc_core.options import counted
from cdc_core.store.values import DeadLetter

_MAX_SHOWN = 20


@changefeed_command()
@click.option("--list", "only_list", is_flag=True, help="Only list the dead letters.")
@click.option(
    "--give-up",
    "given_up",
    type=int,
    multiple=True,
    metavar="NUMBER",
    help="Discard the row with this number in the list. May be repeated.",
)
def replay_dead_letters(named: Named, only_list: bool, given_up: tuple[int, ...]) -> int:
    """Send the dead letters of the changefeed NAME in FILE to its sink again.

    The changefeed must be stopped, and a job paused. Rows of one key are sent in order. A row that is refused again
    stays a dead letter, and the exit status is 1. Discard a row that cannot be fixed by its number.
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
        yield f"{rows} missing from the dead letters' sink; --list shows them, --give-up discards them"


def _rows(waiting: Sequence[DeadLetter]) -> Iterator[tuple[str, ...]]:
    yield ("number", "refused at", "table", "key", "updated", "stage", "error")
    for letter in waiting:
        moment = "" if letter.refused_at is None else letter.refused_at.strftime("%Y-%m-%d %H:%M:%SZ")
        yield (str(letter.number), moment, letter.table, letter.key, str(letter.updated), letter.stage, letter.error)
