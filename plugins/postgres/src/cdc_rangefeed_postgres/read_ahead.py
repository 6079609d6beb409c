"""Takes arrays from a source in another thread, so that the source works while its consumer does."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress

import pyarrow as pa

from cdc_core import RetryableRangefeedError

_INTERRUPT_AFTER_S = 0.1
"""A thread that is about to end is left alone."""
_INTERRUPT_AGAIN_S = 0.2
_END_LIMIT_S = 10.0


class StillReadingError(RetryableRangefeedError):
    """No interruption reached *thread*, so what it reads from is still in use and must not be closed."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__(f"the server did not respond within {_END_LIMIT_S:g} s when reading was ended")
        self._thread = thread

    def afterwards(self, close: Callable[[], object]) -> None:
        """Call *close* in another thread once this one has ended, and ignore its error."""

        def wait() -> None:
            self._thread.join()
            with suppress(Exception):
                close()

        threading.Thread(target=wait, name="cdc-read-ahead-end", daemon=True).start()


def read_ahead(source: Generator[pa.Array], *, max_bytes: int, interrupt: Callable[[], None]) -> Iterator[pa.Array]:
    """Yield the arrays of *source*, which one thread iterates and closes. Raises: what *source* raises.

    Takes no other while those that wait have *max_bytes* or more. When this ends, so has the thread, also when the
    consumer stops early: *interrupt*, called from the consumer's thread, must make a source that is waiting raise or
    return soon. It is called again until the thread has ended, as it may come between two calls that wait.

    Raises: StillReadingError when the thread does not end within a few seconds.
    """
    waiting = _Waiting(max_bytes)
    thread = threading.Thread(target=waiting.fill, args=(source,), name="cdc-read-ahead", daemon=True)
    thread.start()
    try:
        yield from waiting.drain()
    finally:
        waiting.stop()
        _end(thread, interrupt)


def _end(thread: threading.Thread, interrupt: Callable[[], None]) -> None:
    thread.join(_INTERRUPT_AFTER_S)
    deadline = time.monotonic() + _END_LIMIT_S
    while thread.is_alive():
        if time.monotonic() > deadline:
            raise StillReadingError(thread)
        interrupt()
        thread.join(_INTERRUPT_AGAIN_S)


class _Waiting:
    """The arrays between the two threads."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._arrays: deque[pa.Array] = deque()
        self._bytes = 0
        self._error: BaseException | None = None
        self._ended = False
        self._stopped = False

    def fill(self, source: Generator[pa.Array]) -> None:
        error: BaseException | None = None
        try:
            for array in source:
                if not self._put(array):
                    break
            source.close()
        except BaseException as raised:
            error = raised
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def drain(self) -> Iterator[pa.Array]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._arrays or self._ended)
                if not self._arrays:
                    if self._error is not None:
                        raise self._error
                    return
                array = self._arrays.popleft()
                self._bytes -= array.nbytes
                self._changed.notify_all()
            yield array

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _put(self, array: pa.Array) -> bool:
        """Return whether another one is wanted, which may take a while."""
        with self._changed:
            self._arrays.append(array)
            self._bytes += array.nbytes
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._bytes < self._max_bytes or self._stopped)
            return not self._stopped
