"""`cdc trace`."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.changefeeds.tracing import (
    MAX_CHANGES,
    MAX_TRACE_S,
    ROWS,
    TIMEOUT,
    Trace,
    checked_key,
    shown_change,
    standing_text,
    trace_seconds,
)
from cdc_core.cli.located import Named, changefeed_command
from cdc_core.cli.session import CliSession
from cdc_core.errors import ConfigError
from cdc_core.options import format_duration
from cdc_core.store.traced_change import TracedChange
from cdc_core.telemetry.status import shown_moment

_POLL_S = 0.2
_STANDING_S = 5.0
"""How often it is said where the changefeed stands, while nothing arrives."""


@changefeed_command()
@click.option("--table", metavar="TABLE", help="Trace changes to this table. Default: all tables.")
@click.option(
    "--key",
    metavar="JSON",
    help="Trace changes to the row of --table with this key: a JSON array of the key's values, such as [42].",
)
@click.option(
    "--rows",
    metavar="N",
    type=click.IntRange(1, MAX_CHANGES),
    default=ROWS,
    show_default=True,
    help=f"Stop after this many changes; at most {MAX_CHANGES}.",
)
@click.option(
    "--timeout",
    metavar="DURATION",
    default=TIMEOUT,
    show_default=True,
    help=f"Stop after this time; at most {format_duration(MAX_TRACE_S)}.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each change as one line of JSON.")
def trace(named: Named, table: str | None, key: str | None, rows: int, timeout: str, as_json: bool) -> int:
    """Follow the next changes of the running changefeed NAME in FILE, on this host or another, and print when each was
    committed, planned, read, encoded, emitted to the sink, acknowledged by it, saved, and resolved.

    With --key, follows every change to one row; otherwise the next changes to the table, or to all tables. While no
    change arrives, stderr shows how far along the changefeed is and what it is waiting for. Shows keys but no other
    values.

    FILE, NAME, --state and --store mean the same as in `cdc show`. The exit status is 0 if a change was delivered
    completely, otherwise 1.
    """
    wanted = None if key is None else checked_key(key)
    if key is not None and table is None:
        raise ConfigError("--key requires --table")
    try:
        trace_seconds(timeout)
    except ValueError as error:
        raise ConfigError(f"--timeout: '{timeout}' {error}") from None
    with named.read() as (changefeeds, found):
        changefeed = named.place()[0] if found is None else found
        asked = changefeeds.ask_trace(changefeed, table=table, key=wanted, rows=rows, timeout=timeout)
        with Trace(changefeeds.store, asked) as traced:
            return _follow(named.session, changefeeds, traced, changefeed, as_json=as_json)


def _follow(session: CliSession, changefeeds: Changefeeds, traced: Trace, name: str, *, as_json: bool) -> int:
    """Print the changes as they become complete, the others at the end."""

    def show(change: TracedChange) -> None:
        if as_json:
            session.echo_json(shown_change(change))
        else:
            click.echo(session.masked("\n".join(change_lines(change))))

    standing_at, said = time.monotonic() + 2 * _POLL_S, ""
    try:
        while True:
            over = traced.over
            for change in traced.poll():
                if change.complete:
                    show(change)
                    standing_at = time.monotonic() + _STANDING_S
            if over:
                break
            if time.monotonic() >= standing_at:
                text = standing_text(changefeeds.store, changefeeds.known(name))
                if text != said:
                    click.echo(session.masked(text), err=True)
                said, standing_at = text, time.monotonic() + _STANDING_S
            time.sleep(_POLL_S)
    except KeyboardInterrupt:  # whoever has seen enough
        pass
    finally:
        for change in traced.changes:
            if not change.complete:
                show(change)
    if not traced.changes:
        click.echo("no such change was read in time", err=True)
    return 0 if any(change.complete for change in traced.changes) else 1


def change_lines(change: TracedChange) -> Iterator[str]:
    """Yield the change as a block of lines: what it is, and when after its commit it reached each stage."""
    at = "" if change.position is None else f" at {change.position}"
    verb = "read from the table" if change.op == "scan" else f"{change.op}, committed"
    yield f"{change.table} {change.key}: {verb} {shown_moment(change.updated.to_datetime())}{at}"
    for stage in change.moments:
        notes = {"planned": f"step {change.step}", "acknowledged": _place(change)}
        yield f"  {stage:13} {change.after_s(stage):+.3f} s  {notes.get(stage, '')}".rstrip()
    if change.left_out:
        yield "  left out      the query leaves it out"
    elif change.dead_letter is not None:
        yield f"  refused       it became a dead letter ({change.dead_letter})"
    if not change.complete:
        yield "  not complete  waiting for the next stage"


def _place(change: TracedChange) -> str:
    return ", ".join(f"{name} {value}" for name, value in change.place.items())
