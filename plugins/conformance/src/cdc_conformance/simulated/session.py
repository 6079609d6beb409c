"""One process's view of the simulated database: a file of events, and the state of the cluster after them."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.errors import StatementError

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

    def rewind(self) -> None:
        """Continue with the first event."""
        self.offset = 0

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
        """The current state. Read it only."""
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
            self._cluster = Cluster()
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
        for event in self._journal.unread():
            self._cluster.apply(event)
