"""The master of the nodes' cluster, as the driver of one application finds it: another node may lead at any time."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress

from cdc_core.errors import RetryableError
from cdc_core.store.progress import ProgressStore

_POLL_INTERVAL_S = 2.0
_START_S = 30.0
"""How long a driver waits for a master to start."""
_LISTENS_POLL_S = 0.5
_CONNECT_S = 2.0
_UNKNOWN_S = 5.0
"""How long a master that knows an application may leave it out of what it keeps in the store."""


def listens(address: str) -> bool:
    """Return whether a process can be reached at *address*, `HOST:PORT`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except OSError:
        return False
    return True


class NodesMaster:
    """Finds the master through *store* for a driver. Called by one thread at a time."""

    def __init__(self, store: ProgressStore) -> None:
        self._store = store
        self._epoch = 0
        self._poll_at = float("-inf")
        self._unknown_since: float | None = None

    def url(self, *, wanted: Callable[[], bool]) -> str:
        """Return where an application that begins now finds it, once it listens, or after a while.

        Spark would ask only every 20 seconds. Returns at once when it is no longer *wanted*.

        Raises: RetryableError when no node offers cores.
        """
        give_up_at = time.monotonic() + _START_S
        while True:
            record = self._store.cluster.poll()
            if not record.members:
                raise RetryableError(
                    "the master is 'nodes', but no node offers cores; start a node with `cdc node --cores N`"
                )
            found = record.leader is not None and listens(record.leader.master)
            if found or not wanted() or time.monotonic() >= give_up_at:
                self._epoch, self._unknown_since = record.epoch, None
                return record.url
            time.sleep(_LISTENS_POLL_S)

    def has_lost(self, application: str) -> bool:
        """Return whether another one leads since `url` was asked, and does not know *application*. Cheap.

        It registered in the last moment of the earlier one, or did not answer the new one in time. Spark tells neither.
        """
        now = time.monotonic()
        if now >= self._poll_at:
            self._poll_at = now + _POLL_INTERVAL_S
            with suppress(RetryableError):  # the run notices by itself
                if self._store.cluster.knows(application, epoch=self._epoch):
                    self._unknown_since = None
                elif self._unknown_since is None:
                    self._unknown_since = now
        return self._unknown_since is not None and now - self._unknown_since >= _UNKNOWN_S
