"""States of simulated clusters that this process has computed: a new session need not apply all events again."""

from __future__ import annotations

import pickle
import threading
from collections import OrderedDict

from cdc_conformance.simulated.cluster import Cluster

__all__ = ["Snapshots"]

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
