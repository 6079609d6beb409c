"""Components that stay open in a worker process between the slices of an attempt."""

from __future__ import annotations

import gc
import logging
import sys
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
        self._open: OrderedDict[Key, tuple[C, float]] = OrderedDict()
        """With when it was used last."""

    @contextmanager
    def use(self, key: Key, opener: Callable[[], C]) -> Iterator[C]:
        """Yield the component of *key*, opened if necessary; keep it open if the block ends without an exception."""
        component, _ = self._open.pop(key, (None, 0.0))
        unused = time.monotonic() - _UNUSED_S
        for other, (_, used) in list(self._open.items()):
            if (other[0] == key[0] and other[1] < key[1]) or used < unused:
                self._close(self._open.pop(other)[0])
        if component is None:
            component = opener()
            _exclude_modules()
        try:
            yield component
        except BaseException:
            self._close(component)
            raise
        self._open[key] = component, time.monotonic()
        while len(self._open) > self._size:
            self._close(self._open.popitem(last=False)[1][0])

    def _close(self, component: C) -> None:
        try:
            component.close()
        except Exception:
            log.warning("closing %s failed", type(component).__name__, exc_info=True)


_modules = 0
"""How many modules there were when objects were last excluded."""


def _exclude_modules() -> None:
    """Exclude what modules have loaded for good from collections: pyspark makes one after every task.

    Only if there are new ones: what is excluded is never collected, so components would stay, more with every attempt.
    """
    global _modules
    if len(sys.modules) != _modules:
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()
