"""The status of a running changefeed, as a value and as text."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

from cdc_core.rangefeed import ScanProgress
from cdc_core.timestamp import Timestamp

__all__ = [
    "Status",
    "StatusLog",
    "StatusView",
    "dead_letters_text",
    "delivered_text",
    "high_water_text",
    "history_text",
    "is_idle",
    "shares_text",
    "shown_moment",
    "status_line",
    "waiting_text",
]

log = logging.getLogger(__name__)

_PAUSED_TIMES = 60
_RELEASES_REPORTED = 2
"""A single failed release is not reported: the next one covers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A running changefeed at one moment. Holds no secret.

    `rows`, `bytes` and `files` are totals over all runs. `behind_s` is the distance of the high-water mark from now.
    `dead_letters` counts the rows that are among the dead letters. `shares` is the part of their time that the slices
    of the last seconds spent at each stage (see `cdc_core.telemetry.stages`). `releases_failed` counts the latest
    consecutive steps after which the source did not release its history.

    `waiting_on` is what the changefeed waits for ("changes", "sink 'webhook'"), and `waiting_on_s` is for how long if a
    task is stuck. `waiting_for` is the error that a retry may cure, and `next_attempt_s` is the time until the retry.
    For a paused changefeed `waiting_for` is the error that needs a person, who then runs `resume_command`.
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

    The line of a paused changefeed comes far less often: nothing in it changes.
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


def status_line(status: Status) -> str:
    """Return the status as one line."""
    parts = [status.phase]
    if status.scan is not None:
        parts.append(f"initial scan {status.scan.done:,} of {status.scan.total:,} {status.scan.unit}")
    if status.rows:
        parts.append(f"{status.rows:,} rows ({status.rows_per_s:,.0f} rows/s)")
        parts.append(delivered_text(status))
    if status.high_water:
        parts.append(f"high-water mark {high_water_text(status)}")
    if status.dead_letters:
        parts.append(dead_letters_text(status))
    if history := history_text(status):
        parts.append(f"the source's history: {history}")
    if status.shares:
        parts.append(f"time spent: {shares_text(status)}")
    if waiting := waiting_text(status):
        parts.append(waiting)
    return f"changefeed '{status.changefeed}': {', '.join(parts)}"


def delivered_text(status: Status) -> str:
    size = f"{status.bytes / 1024 / 1024:,.1f} MB"
    return f"{size} in {status.files:,} files" if status.files else size


def high_water_text(status: Status) -> str:
    moment = shown_moment(status.high_water.to_datetime())
    return moment if status.behind_s is None else f"{moment} ({_behind(status.behind_s)} behind)"


def dead_letters_text(status: Status) -> str:
    return f"{status.dead_letters:,} {'row' if status.dead_letters == 1 else 'rows'} in the dead letters"


def history_text(status: Status) -> str:
    """Return a warning that the source's history grows; empty while it is released, or failed to be only once."""
    if status.releases_failed < _RELEASES_REPORTED:
        return ""
    return (
        f"not released at the last {status.releases_failed:,} steps, so it grows; see {status.changefeed}.spark.log for"
        " the reason"
    )


def shares_text(status: Status) -> str:
    return ", ".join(f"{stage} {share:.0%}" for stage, share in status.shares.items())


def is_idle(status: Status) -> bool:
    """Return whether the changefeed only waits for changes."""
    return status.waiting_for is None and (status.waiting_on or "").startswith("changes")


def waiting_text(status: Status) -> str:
    """Return what the changefeed waits for; empty when it does not wait."""
    if status.waiting_on is None and status.waiting_for is None:
        return ""
    if status.paused_since is not None:
        since = shown_moment(status.paused_since)
        return f"since {since}: {status.waiting_for}; run `{status.resume_command}` to continue"
    if status.waiting_for is None:
        long = "" if status.waiting_on_s is None else f" for {_how_long(status.waiting_on_s)}"
        return f"waiting for {status.waiting_on}{long}"
    reason = status.waiting_for if status.waiting_on is None else f"{status.waiting_on}: {status.waiting_for}"
    if status.next_attempt_s is None:
        return f"waiting: {reason}"
    return f"{reason}; next attempt in {status.next_attempt_s:.0f} s"


def shown_moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _behind(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _how_long(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else _behind(seconds)
