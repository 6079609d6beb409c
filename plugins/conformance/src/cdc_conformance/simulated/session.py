"""One process's view of the simulated database: a file of events, and the state of the cluster after them."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.errors import StatementError

__all__ = ["Journal", "Session", "Snapshots"]

_NAME = "events.jsonl"


class Journal:
    """Reads the events of a directory in order, each once, and appends new ones under a lock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._path = directory / _NAME
        self.offset = 0
        """Where the unread events begin."""

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def unread(self) -> Iterator[dict[str, Any]]:
        """Yield the events that were appended since the last call. An unfinished line does not count."""
        try:
            if os.stat(self._path).st_size <= self.offset:  # the common case
                return
            with self._path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return
        for line in data.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                return
            self.offset += len(line)
            yield json.loads(line)

    def complete(self) -> bytes:
        """Return everything that was written, without an unfinished line."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return b""
        return data[: data.rfind(b"\n") + 1]

    def rewind(self, offset: int = 0) -> None:
        """Continue with the event at *offset*, by default the first."""
        self.offset = offset

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep all other writers out of the block. Not reentrant. The directory must exist."""
        with (self.directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def append(self, event: Mapping[str, Any]) -> None:
        """Append *event*; it counts as read. Call it only while `locked`, after all events were read."""
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        with self._path.open("ab") as file:
            if file.tell() > self.offset:  # a writer died in the middle of its line
                os.truncate(file.fileno(), self.offset)
            file.write(line)
        self.offset += len(line)


_LEAST_BYTES = 2_000
"""A snapshot is worth its memory when so much was written since the one before."""


class Snapshots:
    """The newest states, each with the bytes of the journal that lead to it. May be used by several threads.

    The state is a pure function of the events, so a journal that begins with the same bytes has the same state there,
    whatever its directory. Every session gets a copy of its own.
    """

    def __init__(self, *, most: int = 4) -> None:
        self._most = most
        self._states: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, journal: bytes) -> tuple[Cluster, int]:
        """Return the latest known state of a cluster with *journal*, and the offset of the events that follow."""
        with self._lock:
            events = max((known for known in self._states if journal.startswith(known)), key=len, default=b"")
            if not events:
                return Cluster(), 0
            self._states.move_to_end(events)
            state = self._states[events]
        cluster: Cluster = pickle.loads(state)
        return cluster, len(events)

    def keep(self, cluster: Cluster, journal: bytes, *, since: int) -> None:
        """Keep a copy of *cluster*, which has applied exactly *journal*, if much of that was written after *since*."""
        if len(journal) - since < _LEAST_BYTES:
            return
        state = pickle.dumps(cluster, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            self._states[journal] = state
            self._states.move_to_end(journal)
            while len(self._states) > self._most:
                self._states.popitem(last=False)


_SNAPSHOTS = Snapshots()


class Session:
    """The cluster of *directory* as of its last event. May be used by several threads."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory).absolute()
        self._journal = Journal(self.directory)
        self._cluster = Cluster()
        self._lock = threading.RLock()
        self._open = 0

    @property
    def exists(self) -> bool:
        return self._journal.exists

    @property
    def cluster(self) -> Cluster:
        """The present state. Read it only."""
        with self._lock:
            self._catch_up()
            return self._cluster

    def execute(self, op: str, **fields: Any) -> Any:
        """Apply and append one event, and return its outcome."""
        with self.writing():
            return self._execute({"op": op, **fields})

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other writers out of the block. All their events are read before it begins."""
        with self._lock:
            if self._open:
                yield
                return
            with self._journal.locked():
                self._catch_up()
                self._open += 1
                try:
                    yield
                finally:
                    self._open -= 1

    def _execute(self, event: Mapping[str, Any]) -> Any:
        event = json.loads(json.dumps(event))
        try:
            outcome = self._cluster.apply(event)
            self._journal.append(event)
        except BaseException:  # the event may be half applied
            self._journal.rewind()
            self._replay()
            raise
        return outcome

    def _catch_up(self) -> None:
        if self._open:
            return
        if not self.exists:
            raise StatementError(f"there is no simulated database in {self.directory}")
        self._replay()

    def _replay(self) -> None:
        if self._journal.offset:
            self._apply_unread()
            return
        journal = self._journal.complete()
        self._cluster, begin = _SNAPSHOTS.find(journal)
        self._journal.rewind(begin)
        self._apply_unread()
        end = self._journal.offset
        if end <= len(journal):  # nobody has appended meanwhile
            _SNAPSHOTS.keep(self._cluster, journal[:end], since=begin)

    def _apply_unread(self) -> None:
        for event in self._journal.unread():
            self._cluster.apply(event)
