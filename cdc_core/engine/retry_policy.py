"""When a failed attempt is made again, and when that is given up: if it fails again and again for the same reason."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import (
    ConfigError,
    ContractError,
    RestartError,
    RetryableError,
    RowError,
    TerminalError,
    is_outage,
)
from cdc_core.telemetry.status import behind_text

FINAL = (TerminalError, RowError, ContractError, ConfigError)
"""Errors that no retry can cure."""

_VARIES = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(0x)?[0-9a-f]*\d[0-9a-f]*\b", re.IGNORECASE)
"""Numbers, addresses and identities: they differ between two errors for the same reason."""


@dataclass(slots=True)
class _Reason:
    first: float
    count: int = 0


class RetryPolicy:
    """Decides about the failed attempts at one thing, such as those of a run. Used by one thread.

    Failures are counted by reason until rows are delivered or more is resolved: it is always the same step that fails.
    Two errors have the same reason if they differ in numbers alone, and every end of Spark's JVM has the same one.
    Another failure in between changes no count. Outages are never counted, however long they last.
    """

    def __init__(self, feed: ResolvedChangefeed, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._feed = feed
        self._clock = clock
        self._reasons: dict[str, _Reason] = {}
        self._wait_s: float = feed.options.retry_backoff
        self._advanced = False
        self.note = ""
        """What the log adds to the last failure: how many times it has come; empty for an outage."""
        self.failures = 0
        """How many times the last failure has come; 0 for an outage."""

    def reset(self) -> None:
        """Forget all failures: rows were delivered, or a person has resumed the changefeed."""
        self._reasons.clear()
        self._wait_s = self._feed.options.retry_backoff
        self._advanced = True

    def next_wait_s(self, error: Exception) -> float:
        """Return how long to wait after *error*: twice as long as the last time, or as long as the other side asked.

        No time at all if nothing failed, and the attempt has delivered something.
        """
        advanced, self._advanced = self._advanced, False
        if advanced and isinstance(error, RestartError):
            return 0.0
        wait_s, self._wait_s = self._wait_s, min(self._wait_s * 2, self._feed.options.max_retry_backoff)
        asked_s = error.retry_after_s if isinstance(error, RetryableError) else None
        return max(wait_s, asked_s or 0.0)

    def give_up_reason(self, error: Exception, reason: str, *, host_ended: str | None = None) -> TerminalError | None:
        """Count a failed attempt; return why there is no other one, None if there is.

        *reason* is *error* for people. With *host_ended* the error only follows from the end of Spark's JVM, about
        which this says what to do.
        """
        self.note, self.failures = "", 0
        if is_outage(error) and host_ended is None:
            return None
        options, now = self._feed.options, self._clock()
        key = f"{type(error).__name__} {_VARIES.sub('#', reason)}" if host_ended is None else ""
        found = self._reasons.setdefault(key, _Reason(now))
        found.count += 1
        self.failures = found.count
        self.note = f" (failure {found.count} of this step for this reason; max_attempts is {options.max_attempts})"
        if found.count < options.max_attempts or now - found.first < options.give_up_after:
            return None
        what = f"the same step failed {found.count} times in {behind_text(now - found.first)}"
        if host_ended is None:
            return TerminalError(f"{what} for the same reason: {reason}")
        return TerminalError(f"{what} because Spark's JVM ended; {host_ended}")
