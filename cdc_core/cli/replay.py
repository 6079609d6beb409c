"""`cdc replay-dead-letters`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import click

from cdc_core.cli.resume import require_known
from cdc_core.cli.run import find_changefeed, make_state_directory, resolved, state_of
from cdc_core.cli.session import CliSession, debug_option
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.replay import DeadLetterReader, Replay, WaitingRow
from cdc_core.errors import ConfigError
from cdc_core.masking import secret_forms, uri_secrets
from cdc_core.store.progress import DeadLetter, ProgressStore

__all__ = ["replay_dead_letters"]

_MOST_SHOWN = 20


@click.command(short_help="Send rows again that were put aside.")
@click.argument("file", metavar="FILE")
@click.argument("name", required=False)
@click.option("--list", "only_list", is_flag=True, help="Only show the rows that wait.")
@click.option(
    "--give-up",
    "given_up",
    type=int,
    multiple=True,
    metavar="NUMBER",
    help="Do not send the row of this number in the list, now or later; may be repeated.",
)
@click.option(
    "--state",
    metavar="DIR|URL",
    help="Where progress is kept: a directory, or the SQLAlchemy URL of a database. Default: .cdc beside FILE.",
)
@debug_option
@click.pass_obj
def replay_dead_letters(
    session: CliSession, file: str, name: str | None, only_list: bool, given_up: tuple[int, ...], state: str | None
) -> int:
    """Send the rows again that the changefeed NAME of FILE has put aside, to its sink.

    The changefeed must be stopped. Rows of one key are sent in their order. A row that is refused again goes on
    waiting, and then the exit status is 1; one that nobody can mend is given up by its number.
    """
    if only_list and given_up:
        raise ConfigError("--list only shows the rows that wait, and gives up none: leave out --list or --give-up")
    changefeed, beside = find_changefeed(file, name)
    session.start_logging()
    feed = resolved(session, changefeed)
    state_dir, url = state_of(beside, state)
    session.add_secrets(secret_forms(uri_secrets(url)))
    store = ProgressStore(url)
    try:
        require_known(store, feed.name)
        waiting = store.dead_letters(feed.name)
        if only_list or not (waiting or given_up):
            for line in _listed(waiting) if waiting else [f"no row of changefeed '{feed.name}' waits to be sent again"]:
                click.echo(session.masked(line))
            return 0
        # the engine's part that needs no Spark
        from cdc_core.engine.replay import replay

        make_state_directory(state_dir)
        result, missing = replay(feed, store=store, state_dir=state_dir, find=partial(_find, feed), give_up=given_up)
    finally:
        store.close()
    for line in _told(feed, result, missing, len(set(given_up))):
        click.echo(session.masked(line))
    return 1 if result.kept or missing else 0


def _find(feed: ResolvedChangefeed, letters: Sequence[DeadLetter]) -> Sequence[WaitingRow]:
    """Return the rows of *letters*. Only then must the dead letters be at hand: rows are given up without them."""
    if feed.dead_letter is None:
        raise ConfigError(
            f"{len(letters)} rows of changefeed '{feed.name}' wait in its dead letters, but it has no option"
            " 'dead_letter' any more: set it, and on_error = 'dead_letter', to where they are"
        )
    return DeadLetterReader(feed).find(letters)


def _told(feed: ResolvedChangefeed, result: Replay, missing: int, given_up: int) -> Iterator[str]:
    up = f", {given_up} were given up" if given_up else ""
    yield f"changefeed '{feed.name}': {len(result.sent)} rows were sent again, {len(result.kept)} go on waiting{up}"
    for bad in result.kept[:_MOST_SHOWN]:
        yield f"  {bad} (stage {bad.stage}): {bad.shown_reason}"
    if len(result.kept) > _MOST_SHOWN:
        yield f"  and {len(result.kept) - _MOST_SHOWN} more"
    if missing:
        yield f"{missing} rows that wait are not in the dead letters any more: --list shows them, --give-up ends that"


def _listed(waiting: Sequence[DeadLetter]) -> Iterator[str]:
    """Yield a table of *waiting*, its columns as wide as they must be."""
    rows = [("number", "put aside at", "table", "key", "updated", "stage", "error")]
    for letter in waiting:
        moment = "" if letter.refused_at is None else letter.refused_at.strftime("%Y-%m-%d %H:%M:%SZ")
        rows.append(
            (str(letter.number), moment, letter.table, letter.key, str(letter.updated), letter.stage, letter.error)
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
