"""How often one client may ask."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

_MAX_CLIENTS = 10_000


class RateLimit:
    """A token bucket for each client: *rate* requests a second, and *burst* at once. Safe with several threads.

    Only the clients that asked last are remembered, so that many addresses take no more memory than 10,000.
    """

    def __init__(self, rate: float, burst: float, *, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._now = rate, max(1.0, burst), now
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> int:
        """Return 0 when *client* may ask now, otherwise after how many whole seconds it may."""
        with self._lock:
            now = self._now()
            left, at = self._buckets.pop(client, (self._burst, now))
            left = min(self._burst, left + (now - at) * self._rate)
            granted = left >= 1.0
            self._buckets[client] = (left - granted, now)
            if len(self._buckets) > _MAX_CLIENTS:
                self._buckets.popitem(last=False)
            return 0 if granted else max(1, math.ceil((1.0 - left) / self._rate))
