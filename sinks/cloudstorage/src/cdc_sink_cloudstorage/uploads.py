"""Finished files on their way to the store, while the next ones are filled."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from cdc_core.errors import TerminalSinkError
from cdc_sink_cloudstorage.store import Chunk, Store

__all__ = ["Uploads"]

_WORKERS = 4
_IDLE_S = 5.0


@dataclass(slots=True, eq=False)
class _Round:
    """What is uploaded between two barriers, and whether it is still wanted."""

    unfinished: int = 0
    failure: BaseException | None = None
    abandoned: bool = False

    @property
    def broken(self) -> bool:
        return self.abandoned or self.failure is not None


@dataclass(slots=True, eq=False)
class _Upload:
    path: str | None
    """None for the sweep."""
    chunks: Sequence[Chunk]
    nbytes: int
    round: _Round
    before: _Upload | None
    """The upload of the same lane that must be visible first; None when there is none, or none any more."""
    done: bool = field(default=False)


class Uploads:
    """Brings files to a store in background threads. `put` returns at once, `wait` when all of them are visible.

    Files of one lane become visible in the order of their `put`, and only when all before them have: a process that
    dies, or an upload that fails, leaves the beginning of a lane and nothing behind a gap. Their bytes travel at the
    same time all the same. Files of different lanes know no order.

    While *most_bytes* or more wait or travel, `put` waits; so at most that and one file are held. Nothing is tried
    again here. The first failure stops the round: what is not visible yet is dropped, and `put` and `wait` raise it,
    until `abandon`.

    Used by one thread. Its own threads start when there is work and end when there is none for a while.
    """

    def __init__(self, store: Store, *, most_bytes: int) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._queue: deque[_Upload] = deque()
        self._last: dict[str, _Upload] = {}
        self._round = _Round()
        self._bytes = 0
        self._workers = 0
        self._idle = 0
        self._closed = False

    @property
    def pending_bytes(self) -> int:
        """Bytes of files that are not visible yet."""
        return self._bytes

    def put(self, path: str, chunks: Sequence[Chunk], *, nbytes: int, lane: str) -> None:
        """Take a file of *nbytes*, to become visible at *path* after the files of *lane* that were put before.

        Raises: what the store raised for an earlier file; TerminalSinkError when closed meanwhile.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._bytes < self._most_bytes)
            self._raise_if_broken()
            before = self._last.get(lane)
            if before is not None and before.done:
                before = None
            self._last[lane] = self._add(path, chunks, nbytes=nbytes, before=before)

    def sweep(self) -> None:
        """Have the store swept, which `wait` waits for too."""
        with self._changed:
            self._add(None, (), nbytes=0, before=None)

    def wait(self) -> None:
        """Return when every file that was put is durable and visible. Raises: as `put`."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._round.unfinished)
            self._raise_if_broken()
            self._last.clear()

    def abandon(self) -> None:
        """Forget what is not visible yet, and failures.

        Of each lane the upload that is next may be at its last request, and be shown when that ends; no other is.
        """
        with self._changed:
            self._abandon()

    def close(self) -> None:
        """As `abandon`, and let the threads end. Waits for nothing; may be called twice."""
        with self._changed:
            self._closed = True
            self._abandon()

    def _add(self, path: str | None, chunks: Sequence[Chunk], *, nbytes: int, before: _Upload | None) -> _Upload:
        upload = _Upload(path=path, chunks=chunks, nbytes=nbytes, round=self._round, before=before)
        self._queue.append(upload)
        self._round.unfinished += 1
        self._bytes += nbytes
        if self._idle < len(self._queue) and self._workers < _WORKERS:
            self._workers += 1
            threading.Thread(target=self._work, name="cloudstorage-upload", daemon=True).start()
        self._changed.notify_all()
        return upload

    def _abandon(self) -> None:
        self._round.abandoned = True
        self._round = _Round()
        self._bytes -= sum(upload.nbytes for upload in self._queue)
        self._queue.clear()
        self._last.clear()
        self._changed.notify_all()

    @property
    def _stopped(self) -> bool:
        return self._closed or self._round.broken

    def _raise_if_broken(self) -> None:
        if self._closed:
            raise TerminalSinkError("the cloud-storage sink is closed")
        if self._round.failure is not None:
            raise self._round.failure

    def _work(self) -> None:
        while (upload := self._next()) is not None:
            failure: BaseException | None = None
            try:
                self._carry(upload)
            except BaseException as error:  # raised where somebody waits
                failure = error
            with self._changed:
                upload.chunks, upload.before, upload.done = (), None, True
                upload.round.failure = upload.round.failure or failure
                upload.round.unfinished -= 1
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
        round_ = upload.round
        if round_.broken:
            return
        if upload.path is None:
            self._store.sweep()
            return
        with self._changed:
            is_next = upload.before is None or upload.before.done
        if is_next:  # nothing to wait for: what takes fewer requests will do
            self._store.put(upload.path, upload.chunks)
            return
        staged = self._store.stage(upload.path, upload.chunks)
        upload.chunks = ()
        # Taken from the queue in order, so what is before is another thread's already and will end.
        with self._changed:
            self._changed.wait_for(lambda: round_.broken or upload.before is None or upload.before.done)
            broken = round_.broken
        if broken:
            staged.discard()
        else:
            staged.publish()
