"""What a running changefeed says about itself, and how people get to see it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cdc_core.rangefeed import ScanProgress
from cdc_core.timestamp import Timestamp

__all__ = ["Status", "StatusBlock", "StatusLog", "StatusView", "shown_moment", "status_line"]

log = logging.getLogger(__name__)

_PAUSED_TIMES = 60
_RELEASES_TOLD = 2
"""From so many failures in a row on people are told: one passes, and the next release covers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A running changefeed at one moment. Holds no secret.

    `rows`, `bytes` and `files` are totals over all runs. `behind_s` is the distance of the high-water mark from now.
    `dead_letters` counts the rows that wait in the dead letters. `shares` is which part of their time the slices of
    the last seconds spent at each stage, see `stages`. `releases_failed` is how many of the last steps the
    source could not be told to forget, one after another.

    `waiting_on` is what the changefeed waits for ("changes", "sink 'webhook'"), `waiting_on_s` for how long if a task
    is stuck. `waiting_for` is the error that a retry may cure, `next_attempt_s` how long until then. Of a changefeed
    that is paused it is the error that needs a person, who then calls `resume_command`.
    """

    changefeed: str
    phase: str
    rows: int = 0
    rows_per_s: float = 0.0
    bytes: int = 0
    files: int = 0
    high_water: Timestamp = Timestamp()
    behind_s: float | None = None
    scan: ScanProgress | None = None
    dead_letters: int = 0
    releases_failed: int = 0
    shares: Mapping[str, float] = field(default_factory=dict)
    waiting_on: str | None = None
    waiting_on_s: float | None = None
    waiting_for: str | None = None
    next_attempt_s: float | None = None
    paused_since: datetime | None = None
    resume_command: str | None = None


class StatusView(Protocol):
    """Shows statuses while it is entered. Called a few times a second, from one thread."""

    def __call__(self, status: Status) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class StatusLog:
    """Logs one line every *interval_s*, and when the phase changes. The last status is logged at the end.

    A changefeed that is paused has nothing new to say for long: its line comes far less often.
    """

    def __init__(self, *, interval_s: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._due = float("-inf")
        self._last: Status | None = None
        self._logged: Status | None = None

    def __call__(self, status: Status) -> None:
        now = self._clock()
        if self._last is None or status.phase != self._last.phase or now >= self._due:
            self._log(status)
            self._due = now + self._interval_s * (_PAUSED_TIMES if status.paused_since is not None else 1)
        self._last = status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._last is not None and self._last != self._logged:
            self._log(self._last)

    def _log(self, status: Status) -> None:
        self._logged = status
        log.info("%s", status_line(status))


class StatusBlock:
    """One live block at the bottom of a terminal; everything that is logged scrolls above it."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=False)

    def __call__(self, status: Status) -> None:
        self._live.update(status_block(status))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


def status_line(status: Status) -> str:
    """Return the status as one line."""
    parts = [status.phase]
    if status.scan is not None:
        parts.append(f"initial scan {status.scan.done:,} of {status.scan.total:,} {status.scan.unit}")
    if status.rows:
        parts.append(f"{status.rows:,} rows ({status.rows_per_s:,.0f} rows/s)")
        parts.append(_volume(status))
    if status.high_water:
        parts.append(f"high-water mark {_high_water(status)}")
    if status.dead_letters:
        parts.append(_dead_letters(status))
    if status.releases_failed >= _RELEASES_TOLD:
        parts.append(f"the source's history: {_history(status)}")
    if status.shares:
        parts.append(f"spends its time: {_shares(status)}")
    if _waits(status):
        parts.append(_waiting(status))
    return f"changefeed '{status.changefeed}': {', '.join(parts)}"


def status_block(status: Status) -> Table:
    """Return the status as a block of a few lines."""
    block = Table.grid(padding=(0, 2))
    block.add_column(style="bold")
    block.add_column()
    block.add_row(Text(status.changefeed), Text(status.phase))
    if status.scan is not None:
        block.add_row("initial scan", _scan_bar(status.scan))
    block.add_row("rows", Text(f"{status.rows:,} ({status.rows_per_s:,.0f} rows/s)"))
    block.add_row("delivered", Text(_volume(status)))
    block.add_row("high-water mark", Text(_high_water(status) if status.high_water else "none yet"))
    if status.dead_letters:
        block.add_row("dead letters", Text(_dead_letters(status), style="yellow"))
    if status.releases_failed >= _RELEASES_TOLD:
        block.add_row("source's history", Text(_history(status), style="yellow"))
    if status.shares:
        block.add_row("spends its time", Text(_shares(status)))
    if _waits(status):
        block.add_row("waiting", Text(_waiting(status), style="" if _is_idle(status) else "yellow"))
    return block


def _scan_bar(scan: ScanProgress) -> Table:
    bar = Table.grid(padding=(0, 1))
    share = scan.done / scan.total if scan.total else 0.0
    text = Text(f"{share:.0%}, {scan.done:,} of {scan.total:,} {scan.unit}")
    bar.add_row(ProgressBar(total=max(scan.total, 1), completed=scan.done, width=30), text)
    return bar


def _volume(status: Status) -> str:
    size = f"{status.bytes / 1024 / 1024:,.1f} MB"
    return f"{size} in {status.files:,} files" if status.files else size


def _high_water(status: Status) -> str:
    moment = shown_moment(status.high_water.to_datetime())
    return moment if status.behind_s is None else f"{moment} ({_behind(status.behind_s)} behind)"


def _behind(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def shown_moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _dead_letters(status: Status) -> str:
    return f"{status.dead_letters:,} {'row' if status.dead_letters == 1 else 'rows'} in the dead letters"


def _history(status: Status) -> str:
    return (
        f"not released at the last {status.releases_failed:,} steps, it grows; {status.changefeed}.spark.log says why"
    )


def _shares(status: Status) -> str:
    return ", ".join(f"{stage} {share:.0%}" for stage, share in status.shares.items())


def _is_idle(status: Status) -> bool:
    return status.waiting_for is None and (status.waiting_on or "").startswith("changes")


def _waits(status: Status) -> bool:
    return status.waiting_on is not None or status.waiting_for is not None


def _waiting(status: Status) -> str:
    if status.paused_since is not None:
        return f"since {shown_moment(status.paused_since)}: {status.waiting_for}; go on with `{status.resume_command}`"
    if status.waiting_for is None:
        long = "" if status.waiting_on_s is None else f" for {_how_long(status.waiting_on_s)}"
        return f"waiting for {status.waiting_on}{long}"
    reason = status.waiting_for if status.waiting_on is None else f"{status.waiting_on}: {status.waiting_for}"
    if status.next_attempt_s is None:
        return f"waiting: {reason}"
    return f"{reason}; next attempt in {status.next_attempt_s:.0f} s"


def _how_long(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else _behind(seconds)
