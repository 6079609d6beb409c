"""Requests that failed and will be retried, as the status of the changefeed shows them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from cdc_sink_webhook.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRetry:
    """Why a request is retried, without secrets, and when, by the monotonic clock."""

    reason: str
    next_at: float

    @property
    def next_attempt_s(self) -> float:
        """Seconds until the next attempt."""
        return max(0.0, self.next_at - time.monotonic())


class PendingRetries:
    """The requests that have failed and are not finished. Calls *show* with the oldest one whenever that changes.

    One is enough: when an endpoint is down, every request in flight fails for the same reason.
    """

    def __init__(self, show: Callable[[PendingRetry | None], None]) -> None:
        self._show = show
        self._pending: dict[str, PendingRetry] = {}
        self._shown: PendingRetry | None = None

    def add(self, request: Request, reason: str, wait_s: float) -> None:
        """Note that *request* failed for *reason* and will be retried in *wait_s* seconds."""
        self._pending[request.id] = PendingRetry(reason=reason, next_at=time.monotonic() + wait_s)
        self._update()

    def remove(self, request: Request) -> None:
        """Note that *request* is finished, whether it succeeded or not."""
        if self._pending.pop(request.id, None) is not None:
            self._update()

    def _update(self) -> None:
        first = next(iter(self._pending.values()), None)
        if first != self._shown:
            self._shown = first
            self._show(first)
