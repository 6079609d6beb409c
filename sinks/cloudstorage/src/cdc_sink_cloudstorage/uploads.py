"""Uploads finished files in the background, while the next ones are filled."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from cdc_core import TerminalSinkError
from cdc_sink_cloudstorage.store import Chunk, Store

_WORKERS = 4
_IDLE_S = 5.0


@dataclass(slots=True, eq=False)
class _Upload:
    path: str | None
    """None for the sweep."""
    chunks: Sequence[Chunk]
    nbytes: int
    before: _Upload | None
    """The upload of the same lane that must become visible first; None when it is visible or there is none."""
    done: bool = field(default=False)


class Uploads:
    """Uploads files to a store in background threads. `put` returns at once, `wait` when all files are visible.

    The files of one lane become visible in the order of their `put`, each only after all before it: when a process dies
    or an upload fails, readers see the beginning of a lane and nothing after a gap. Files are uploaded at the same time
    nevertheless. Files of different lanes become visible in any order.

    `put` waits while files of *max_bytes* or more are not visible yet, so this holds at most *max_bytes* and one file.
    It does not retry. After the first failure it drops everything that is not visible yet, and `put` and `wait` raise
    that failure.

    Used by one thread. Its own threads start when there is work, and end after some seconds without any.
    """

    def __init__(self, store: Store, *, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._queue: deque[_Upload] = deque()
        self._last: dict[str, _Upload] = {}
        self._unfinished = 0
        self._bytes = 0
        self._workers = 0
        self._idle = 0
        self._failure: BaseException | None = None
        self._closed = False

    @property
    def pending_bytes(self) -> int:
        """Bytes of files that are not visible yet."""
        return self._bytes

    def put(self, path: str, chunks: Sequence[Chunk], *, nbytes: int, lane: str) -> None:
        """Accept a file of *nbytes*. It becomes visible at *path* after the files that *lane* already has.

        Raises: what the store raised for an earlier file; TerminalSinkError after `close`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._broken or self._bytes < self._max_bytes)
            self._raise_if_broken()
            before = self._last.get(lane)
            if before is not None and before.done:
                before = None
            self._last[lane] = self._add(path, chunks, nbytes=nbytes, before=before)

    def sweep(self) -> None:
        """Sweep the store in the background. `wait` waits for this too."""
        with self._changed:
            self._add(None, (), nbytes=0, before=None)

    def wait(self) -> None:
        """Return when every file is durable and visible. Raises: as `put`."""
        with self._changed:
            self._changed.wait_for(lambda: self._broken or not self._unfinished)
            self._raise_if_broken()
            self._last.clear()

    def close(self) -> None:
        """Drop what is not visible yet and let the threads end. Waits for nothing. May be called twice.

        The next file of each lane may still become visible, if its last request was already sent.
        """
        with self._changed:
            self._closed = True
            self._bytes -= sum(upload.nbytes for upload in self._queue)
            self._queue.clear()
            self._last.clear()
            self._changed.notify_all()

    def _add(self, path: str | None, chunks: Sequence[Chunk], *, nbytes: int, before: _Upload | None) -> _Upload:
        upload = _Upload(path=path, chunks=chunks, nbytes=nbytes, before=before)
        self._queue.append(upload)
        self._unfinished += 1
        self._bytes += nbytes
        if self._idle < len(self._queue) and self._workers < _WORKERS:
            self._workers += 1
            threading.Thread(target=self._work, name="cloudstorage-upload", daemon=True).start()
        self._changed.notify_all()
        return upload

    @property
    def _broken(self) -> bool:
        return self._closed or self._failure is not None

    def _raise_if_broken(self) -> None:
        if self._closed:
            raise TerminalSinkError("the cloud-storage sink is closed")
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while (upload := self._next()) is not None:
            failure: BaseException | None = None
            try:
                self._carry(upload)
            except BaseException as error:  # `put` and `wait` raise it
                failure = error
            with self._changed:
                upload.chunks, upload.before, upload.done = (), None, True
                self._failure = self._failure or failure
                self._unfinished -= 1
                self._bytes -= upload.nbytes
                self._changed.notify_all()
            del upload, failure

    def _next(self) -> _Upload | None:
        """Return the next upload, or None when this thread should end."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._closed or self._queue, timeout=_IDLE_S)
            self._idle -= 1
            if self._queue:
                return self._queue.popleft()
            self._workers -= 1
            return None

    def _carry(self, upload: _Upload) -> None:
        with self._changed:  # at one moment: an upload before this one that is done may have failed
            if self._broken:
                return
            is_next = upload.before is None or upload.before.done
        if upload.path is None:
            self._store.sweep()
            return
        if is_next:  # it need not wait, so `put` may use fewer requests
            self._store.put(upload.path, upload.chunks)
            return
        staged = self._store.stage(upload.path, upload.chunks)
        upload.chunks = ()
        # Threads take uploads in the order of the queue, so another thread has the one before, and it will end.
        with self._changed:
            self._changed.wait_for(lambda: self._broken or upload.before is None or upload.before.done)
            broken = self._broken
        if broken:
            staged.discard()
        else:
            staged.publish()
