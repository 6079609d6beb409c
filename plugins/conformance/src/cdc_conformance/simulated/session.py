"""One process's view of the simulated database: it replays new events, and appends its own under a lock."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.errors import StatementError
from cdc_conformance.simulated.journal import Journal
from cdc_conformance.simulated.snapshots import Snapshots

__all__ = ["Session"]

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
