"""Components that stay open in a worker process between the slices of an attempt."""

from __future__ import annotations

import gc
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

log = logging.getLogger(__name__)


class Closable(Protocol):
    def close(self) -> None: ...


_UNUSED_S = 600.0
"""A component that was not used for so long is closed: its changefeed has ended, or works in other processes."""

C = TypeVar("C", bound=Closable)
Key = tuple[str, int]


class WorkerCache(Generic[C]):
    """A bounded cache of open components by (identity of the changefeed, epoch of the attempt).

    Python workers outlive queries and take any task, so a module-level instance of this keeps connections open. A
    component is out of the cache while it is in use: one whose use did not end normally is never used again, and a task
    that is killed leaves nothing half-used behind.
    """

    def __init__(self, size: int = 32) -> None:
        self._size = size
        self._open: OrderedDict[Key, C] = OrderedDict()
        self._used: dict[Key, float] = {}

    @contextmanager
    def use(self, key: Key, opener: Callable[[], C]) -> Iterator[C]:
        """Yield the component of *key*, opened if necessary; keep it open if the block ends without an exception."""
        component = self._open.pop(key, None)
        unused = time.monotonic() - _UNUSED_S
        for other in list(self._open):
            if (other[0] == key[0] and other[1] < key[1]) or self._used[other] < unused:
                self._close(self._open.pop(other))
        if component is None:
            component = opener()
            # Pyspark collects garbage after every task: exclude what is loaded for good. First collect what is garbage
            # now, or it would stay too, a little more with every attempt.
            gc.collect()
            gc.freeze()
        try:
            yield component
        except BaseException:
            self._close(component)
            raise
        self._open[key], self._used[key] = component, time.monotonic()
        while len(self._open) > self._size:
            self._close(self._open.popitem(last=False)[1])

    def _close(self, component: C) -> None:
        try:
            component.close()
        except Exception:
            log.warning("closing %s failed", type(component).__name__, exc_info=True)
