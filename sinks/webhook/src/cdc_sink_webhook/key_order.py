"""Which requests may be in flight at the same time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from cdc_sink_webhook.request import Request


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """A request in the queue."""

    request: Request
    blockers: int = 0
    """How many earlier requests must be done before this one may start."""
    followers: list[QueuedRequest] = field(default_factory=list)


class KeyOrder:
    """Holds a request back while an earlier request with a common key is queued or in flight.

    This is the rule of CockroachDB's parallel sinks. A request waits for the last earlier request of each of its keys,
    which in turn waits for its own. Nothing is ever searched, and requests start in the order in which they become
    ready.
    """

    def __init__(self) -> None:
        self._last: dict[str, dict[int, QueuedRequest]] = {}
        self._ready: deque[QueuedRequest] = deque()

    def add(self, request: Request) -> None:
        """Queue *request* behind all requests that were added before."""
        last = self._last.setdefault(request.topic, {})
        queued = QueuedRequest(request)
        before = {last[key] for key in last.keys() & request.keys}
        for other in before:
            other.followers.append(queued)
        queued.blockers = len(before)
        last.update(dict.fromkeys(request.keys, queued))
        if not before:
            self._ready.append(queued)

    @property
    def ready(self) -> int:
        """How many requests may start."""
        return len(self._ready)

    def start(self) -> QueuedRequest | None:
        """Return the next request that may start, or None. The caller must call `done` when it has finished."""
        return self._ready.popleft() if self._ready else None

    def done(self, queued: QueuedRequest) -> None:
        """Release the keys of *queued*."""
        last = self._last[queued.request.topic]
        for key in queued.request.keys:
            if last[key] is queued:
                del last[key]
        for follower in queued.followers:
            follower.blockers -= 1
            if not follower.blockers:
                self._ready.append(follower)

    def clear(self) -> None:
        """Forget everything."""
        self._last.clear()
        self._ready.clear()
