"""What commands print for people: tables as wide as the terminal, and words that are colored by how good they are."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cdc_core.cli.session import CliSession

_COLORS = {
    **dict.fromkeys(("ok", "running", "alive", "complete", "succeeded"), "green"),
    **dict.fromkeys(("retrying", "waiting", "paused", "draining"), "yellow"),
    **dict.fromkeys(("error", "failed", "revert-failed", "silent", "dead"), "red"),
}


def colored(text: str, state: str) -> str:
    """Return *text* in the color of *state*, if it has one and NO_COLOR is not set. `click.echo` removes colors where
    no terminal is.
    """
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=_COLORS.get(state))


def marked(state: str) -> str:
    """Return *state* in its color, with a mark if somebody should look at it."""
    return colored(f"{state} !" if _COLORS.get(state) in ("yellow", "red") else state, state)


def echo_table(session: CliSession, rows: Sequence[Sequence[str]]) -> None:
    """Print *rows*, masked, without columns that are empty; the first row is the heading.

    On a terminal, or where COLUMNS is set, cells are wrapped to fit its width. Elsewhere each row is one line.
    """
    texts = [[Text.from_ansi(session.masked(" ".join(cell.split()))) for cell in row] for row in rows]
    columns = [column for column in zip(*texts, strict=True) if any(column[1:])]
    widths = [max(cell.cell_len for cell in column) + 2 for column in columns]
    is_limited = sys.stdout.isatty() or os.environ.get("COLUMNS")
    console = Console(width=None if is_limited else sum(widths))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for heading, *_ in columns:
        table.add_column(heading, overflow="fold")
    if widths[-1] > (least := console.width * 2 // 5):  # it explains: a long name must not take its room
        table.columns[-1].width = min(widths[-1], max(console.width - sum(widths[:-1]), least))
    for cells in zip(*(column[1:] for column in columns), strict=True):
        table.add_row(*cells)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())
