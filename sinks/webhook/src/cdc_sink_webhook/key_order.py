"""Which requests may be under way at the same time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from cdc_sink_webhook.request import Request

__all__ = ["KeyOrder", "Turn"]


@dataclass(slots=True, eq=False)
class Turn:
    """A request in the queue."""

    request: Request
    awaited: int = 0
    """How many requests must be done before this one may begin."""
    followers: list[Turn] = field(default_factory=list)


class KeyOrder:
    """Lets a request begin only when it shares no key with one that is under way or that was queued before it.

    That is the rule of CockroachDB's parallel sinks. A request waits for the last one before it of each of its keys,
    which waits for its own; so nothing is ever searched, and what is ready begins in the order in which it came.
    """

    def __init__(self) -> None:
        self._last: dict[str, dict[int, Turn]] = {}
        self._ready: deque[Turn] = deque()

    def add(self, request: Request) -> None:
        """Queue *request* behind all that were added before."""
        last = self._last.setdefault(request.topic, {})
        turn = Turn(request)
        before = {last[key] for key in last.keys() & request.keys}
        for other in before:
            other.followers.append(turn)
        turn.awaited = len(before)
        last.update(dict.fromkeys(request.keys, turn))
        if not before:
            self._ready.append(turn)

    @property
    def ready(self) -> int:
        """How many requests may begin."""
        return len(self._ready)

    def begin(self) -> Turn | None:
        """Return the next request that may begin, None while there is none. Whoever takes it says when it is `done`."""
        return self._ready.popleft() if self._ready else None

    def done(self, turn: Turn) -> None:
        """Let go of the keys of *turn*."""
        last = self._last[turn.request.topic]
        for key in turn.request.keys:
            if last[key] is turn:
                del last[key]
        for follower in turn.followers:
            follower.awaited -= 1
            if not follower.awaited:
                self._ready.append(follower)

    def clear(self) -> None:
        """Forget everything."""
        self._last.clear()
        self._ready.clear()
