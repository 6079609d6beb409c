"""The status of a running changefeed as a live block at the bottom of a terminal."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cdc_core.rangefeed_values import ScanProgress
from cdc_core.telemetry.status import (
    Status,
    dead_letters_text,
    delivered_text,
    high_water_text,
    history_text,
    is_idle,
    shares_text,
    waiting_text,
)


class StatusBlock:
    """One live block for each changefeed at the bottom of a terminal; everything that is logged scrolls above them.

    *shown* returns what is printed of a text.
    """

    def __init__(self, console: Console, *, shown: Callable[[str], str] = str) -> None:
        self._statuses: dict[str, Status] = {}
        self._shown = shown
        self._live = Live(get_renderable=self._blocks, console=console, refresh_per_second=4, transient=False)

    def __call__(self, status: Status) -> None:
        self._statuses[status.changefeed] = status

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def _blocks(self) -> Group:
        return Group(*(status_block(status, shown=self._shown) for status in list(self._statuses.values())))


def status_block(status: Status, *, shown: Callable[[str], str]) -> Table:
    """Return the status as a block of a few lines."""
    block = Table.grid(padding=(0, 2))
    block.add_column(style="bold")
    block.add_column()
    block.add_row(Text(status.changefeed), Text(status.phase))
    if status.scan is not None:
        block.add_row("scan", _scan_bar(status.scan))
    block.add_row("rows", Text(f"{status.rows:,} ({status.rows_per_s:,.0f} rows/s)"))
    block.add_row("delivered", Text(delivered_text(status)))
    block.add_row("high-water mark", Text(high_water_text(status) if status.high_water else "none yet"))
    if status.dead_letters:
        block.add_row("dead letters", Text(dead_letters_text(status), style="yellow"))
    if history := history_text(status):
        block.add_row("source's history", Text(history, style="yellow"))
    if status.notice:
        block.add_row("source says", Text(shown(status.notice), style="yellow"))
    if status.shares:
        block.add_row("time spent", Text(shares_text(status)))
    if waiting := waiting_text(status):
        block.add_row("waiting", Text(shown(waiting), style="" if is_idle(status) else "yellow"))
    return block


def _scan_bar(scan: ScanProgress) -> Table:
    bar = Table.grid(padding=(0, 1))
    share = scan.done / scan.total if scan.total else 0.0
    text = Text(f"{share:.0%}, {scan.done:,} of {scan.total:,} {scan.unit}")
    bar.add_row(ProgressBar(total=max(scan.total, 1), completed=scan.done, width=30), text)
    return bar
