"""Requests that wait to be repeated, and what is to be said of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from cdc_sink_webhook.request import Request

__all__ = ["Repeat", "Repeats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Why a request is repeated, without secrets, and when next, by the monotonic clock."""

    reason: str
    next_at: float

    @property
    def next_attempt_s(self) -> float:
        """Seconds until the next attempt."""
        return max(0.0, self.next_at - time.monotonic())


class Repeats:
    """Knows the requests that failed and are not settled yet. Calls *show* with the first of them, when that changes.

    An endpoint that is down has as many of them as there are requests at a time, each with the same to tell.
    """

    def __init__(self, show: Callable[[Repeat | None], None]) -> None:
        self._show = show
        self._unsettled: dict[str, Repeat] = {}
        self._shown: Repeat | None = None

    def note(self, request: Request, reason: str, wait_s: float) -> None:
        """Note that *request* failed for *reason* and is repeated after a wait."""
        self._unsettled[request.id] = Repeat(reason=reason, next_at=time.monotonic() + wait_s)
        self._tell()

    def forget(self, request: Request) -> None:
        """Note that *request* is settled, whatever became of it."""
        if self._unsettled.pop(request.id, None) is not None:
            self._tell()

    def _tell(self) -> None:
        first = next(iter(self._unsettled.values()), None)
        if first != self._shown:
            self._shown = first
            self._show(first)
