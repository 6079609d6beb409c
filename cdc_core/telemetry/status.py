"""The status of a running changefeed, as a value and as text."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, Self

from cdc_core.options import counted
from cdc_core.rangefeed_values import ScanProgress
from cdc_core.timestamp import Timestamp

log = logging.getLogger(__name__)

_PAUSED_TIMES = 60
_RELEASES_REPORTED = 2
"""A single failed release is not reported: the next one covers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of a running changefeed at one moment. Contains no secret.

    `rows`, `bytes` and `files` are totals over all runs. `dead_letters` counts the rows that are among the dead
    letters. `shares` says which part of their time the slices of the last seconds spent at each stage (see
    `cdc_core.telemetry.stages`). `slices` says, by host, how many of the last 100 slices ran there; it is empty while
    all of them run on the driver's host. `releases_failed` counts the latest consecutive steps after which the source
    did not release its history. `notice` is what the source reports about its history.

    `waiting_on` is what the changefeed is waiting for ("changes", "sink 'webhook'"), and `waiting_on_s` says for how
    long, if a task is stuck. `waiting_for` is the error after which the changefeed retries, and `next_attempt_s` is the
    time until the retry. For a paused changefeed, `waiting_for` is the error that a person must fix before running
    `resume_command`. `error` is the error that a run failed with. `retrying` is what has failed since the last saved
    step. `retries` counts over all runs, by cause, the attempts that failed and were followed by another one.
    `source_silent_since` says since when, by `time.time()`, the changefeed has waited for an answer from the source;
    None while the source answers. `log_name` is the file in the state directory to which Spark and its workers print.
    """

    changefeed: str
    phase: str
    rows: int = 0
    rows_per_s: float = 0.0
    bytes: int = 0
    files: int = 0
    high_water: Timestamp = Timestamp()
    scan: ScanProgress | None = None
    dead_letters: int = 0
    releases_failed: int = 0
    notice: str | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    slices: Mapping[str, int] = field(default_factory=dict)
    waiting_on: str | None = None
    waiting_on_s: float | None = None
    waiting_for: str | None = None
    next_attempt_s: float | None = None
    paused_since: datetime | None = None
    resume_command: str | None = None
    error: str | None = None
    log_name: str = ""
    retrying: Retrying | None = None
    retries: Mapping[str, int] = field(default_factory=dict)
    source_silent_since: float | None = None

    @property
    def behind_s(self) -> float | None:
        """How far the high-water mark is behind this host's clock now; None while there is no mark."""
        return max(0.0, time.time() - self.high_water.wall / 1e9) if self.high_water else None


class StatusView(Protocol):
    """Shows the statuses of changefeeds while it is entered. Called for each a few times a second, from one thread."""

    def __call__(self, status: Status) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class StatusLog:
    """Logs one line for each changefeed every *interval_s*, and when its phase changes. The last status is logged too.

    A line that says what the last one said is left out; that of a paused changefeed comes again, far less often.
    """

    def __init__(self, *, interval_s: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._due: dict[str, float] = {}
        self._last: dict[str, Status] = {}
        self._logged: dict[str, Status] = {}
        self._lines: dict[str, str] = {}

    def __call__(self, status: Status) -> None:
        now, last = self._clock(), self._last.get(status.changefeed)
        if last is None or status.phase != last.phase or now >= self._due[status.changefeed]:
            paused = status.paused_since is not None
            self._log(status, again=paused)
            self._due[status.changefeed] = now + self._interval_s * (_PAUSED_TIMES if paused else 1)
        self._last[status.changefeed] = status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, status in self._last.items():
            if status != self._logged[name]:
                self._log(status)

    def _log(self, status: Status, *, again: bool = False) -> None:
        name, line = status.changefeed, status_line(status)
        if again or line != self._lines.get(name):
            log.info("%s", line, extra={"changefeed": name})
        self._logged[name], self._lines[name] = status, line


def status_line(status: Status) -> str:
    """Return the status as one line."""
    parts = [status.phase]
    if status.scan is not None:
        parts.append(f"scan {status.scan.done:,} of {status.scan.total:,} {status.scan.unit}")
    if status.rows:
        parts.append(f"{counted(status.rows, 'row')} ({status.rows_per_s:,.0f} rows/s)")
        parts.append(delivered_text(status))
    if status.high_water:
        parts.append(f"high-water mark {high_water_text(status)}")
    if status.dead_letters:
        parts.append(dead_letters_text(status))
    if history := history_text(status):
        parts.append(f"the source's history: {history}")
    if status.notice:
        parts.append(f"the source says: {status.notice}")
    if status.shares:
        parts.append(f"time spent: {shares_text(status)}")
    if waiting := waiting_text(status):
        parts.append(waiting)
    return f"changefeed '{status.changefeed}': {', '.join(parts)}"


def delivered_text(status: Status) -> str:
    size = size_text(status.bytes)
    return f"{size} in {counted(status.files, 'file')}" if status.files else size


def high_water_text(status: Status) -> str:
    moment = shown_moment(status.high_water.to_datetime())
    return moment if status.behind_s is None else f"{moment} ({behind_text(status.behind_s)} behind)"


def dead_letters_text(status: Status) -> str:
    return counted(status.dead_letters, "dead letter")


def history_text(status: Status) -> str:
    """Return a warning that the source's history grows; empty while it is released, or failed to be only once."""
    if status.releases_failed < _RELEASES_REPORTED:
        return ""
    return (
        f"not released after the last {status.releases_failed:,} steps, so it grows;"
        f" see {status.log_name} for the reason"
    )


def shares_text(status: Status) -> str:
    return ", ".join(f"{stage} {share:.0%}" for stage, share in status.shares.items())


def is_idle(status: Status) -> bool:
    """Return whether the changefeed only waits for changes."""
    return status.waiting_for is None and status.retrying is None and (status.waiting_on or "").startswith("changes")


def waiting_text(status: Status) -> str:
    """Return what the changefeed waits for; empty when it does not wait."""
    if status.waiting_for is None and status.retrying is not None:
        return status.retrying.text
    if status.waiting_on is None and status.waiting_for is None:
        return ""
    if status.paused_since is not None:
        since = shown_moment(status.paused_since)
        return f"since {since}: {status.waiting_for}; once that is fixed, run `{status.resume_command}` to continue"
    if status.waiting_for is None:
        long = "" if status.waiting_on_s is None else f" for {_how_long(status.waiting_on_s)}"
        return f"waiting for {status.waiting_on}{long}"
    reason = status.waiting_for if status.waiting_on is None else f"{status.waiting_on}: {status.waiting_for}"
    if status.next_attempt_s is None:
        return f"waiting: {reason}"
    return f"{reason}; next attempt in {status.next_attempt_s:.0f} s"


def size_text(size: float) -> str:
    return f"{size / 1024 / 1024:,.1f} MB"


def shown_moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def behind_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _how_long(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else behind_text(seconds)


_TIMES = ("since", "next_attempt_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """What has failed `failures` times since the last saved step; `error` is the latest error. Contains no secret.

    It remains until a step is saved, even while an attempt runs; `next_attempt_at` is then None.
    """

    error: str
    since: datetime
    failures: int = 1
    next_attempt_at: datetime | None = None

    @classmethod
    def after(cls, before: Self | None, error: str) -> Self:
        """Return the value for *error*, which follows *before*."""
        if before is None:
            return cls(error=error, since=datetime.now(UTC).replace(microsecond=0))
        return cls(error=error, since=before.since, failures=before.failures + 1)

    @property
    def text(self) -> str:
        """One line for people."""
        return f"retrying {self.reason}"

    @property
    def reason(self) -> str:
        """The same text without its first word."""
        at = self.next_attempt_at
        following = "an attempt is running" if at is None else f"next attempt at {shown_moment(at)}"
        failed = counted(self.failures, "failure")
        return f"since {shown_moment(self.since)}, after {failed}: {self.error}; {following}"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, for `from_json`."""
        times = {name: at.isoformat(timespec="seconds") for name in _TIMES if (at := getattr(self, name))}
        return asdict(self) | times

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        times = {name: datetime.fromisoformat(at) for name in _TIMES if (at := value.get(name))}
        return cls(**{**value, **times})
