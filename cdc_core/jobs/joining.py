"""How a node gets a session, while an earlier process of the same node may still have one."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cdc_core.errors import RetryableError
from cdc_core.jobs.lease import Lease
from cdc_core.jobs.settings import NodeSettings
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.progress import ProgressStore

_REPEAT_S = 600.0
"""How often a node that cannot join says so."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LastSessionFile:
    """Keeps the node's session beside *lock*, a file that this process has locked.

    That lock says that whoever held it before has ended, but only on this host since it was started, and only of this
    very file. Another host or container may have a directory of the same name, a copy of it, or the directory itself
    through a network. Where the system does not tell, nothing is known.
    """

    def __init__(self, lock: Path) -> None:
        self._path = lock.with_suffix(".session")
        found = os.stat(lock)
        self._lock = {"boot": _boot(), "device": found.st_dev, "file": found.st_ino}

    def read(self) -> str | None:
        """Return the last session of a process that has certainly ended, or of this one; None when none is known."""
        try:
            kept: Any = json.loads(self._path.read_text())
            session, lock = kept["session"], kept["lock"]
        except (OSError, ValueError, LookupError, TypeError):  # there is none, or not all of it
            return None
        return str(session) if lock == self._lock and lock["boot"] else None

    def write(self, session: str) -> None:
        """Keep *session*, that of this process. If the disk is full, the next one waits until it has expired."""
        unfinished = self._path.with_suffix(".new")
        with suppress(OSError):
            unfinished.write_text(json.dumps({"session": session, "lock": self._lock}))
            unfinished.rename(self._path)


def _boot() -> str:
    """Return what identifies the time since this system was started; empty where that is not known."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


log = logging.getLogger(__name__)


def join(
    settings: NodeSettings,
    store: ProgressStore,
    last_session: LastSessionFile,
    *,
    rest: Callable[[float], None],
    leaving: Callable[[], bool],
) -> Lease | None:
    """Return a new session, as soon as the store gives one; None when the node is *leaving* before.

    The session of a process that has certainly ended is replaced at once. One that may be of an earlier process of this
    node, but may be alive elsewhere, is waited for: it expires, or it is renewed. Raises: ConfigError when another node
    has the name.
    """
    complained_at = float("-inf")
    earlier: NodeRecord | None = None
    while not leaving():
        try:
            last, mine = last_session.read(), settings.record()
            other = _namesake(store, mine, last, earlier)
            if other is None:
                lease = Lease(
                    ProgressStore(settings.store, alone=True),
                    mine,
                    lease_s=settings.lease,
                    heartbeat_s=settings.heartbeat,
                    former=last,
                )
                last_session.write(lease.node.node_id)
                where = f", locality {settings.locality}" if settings.locality else ""
                log.info("node '%s' has joined %s%s", settings.name, store.shown, where)
                return lease
            if earlier is None:
                log.info("node '%s' is waiting for the session of an earlier process to expire", settings.name)
                earlier = other
        except RetryableError as error:
            if time.monotonic() - complained_at >= _REPEAT_S:
                log.warning("node '%s' cannot join: %s", settings.name, error)
                complained_at = time.monotonic()
        rest(settings.poll)
    return None


def _namesake(
    store: ProgressStore, mine: NodeRecord, last: str | None, earlier: NodeRecord | None
) -> NodeRecord | None:
    """Return the session of this name that may be of an earlier process: it was not renewed since it was *earlier*.

    None if there is none, and if there is another one of this name: the store refuses this node for that.
    """
    for node in store.nodes.living():
        if node.name == mine.name and node.node_id != last:
            alike = (node.host, node.directory) == (mine.host, mine.directory)
            renewed = earlier is not None and (node.node_id, node.expires) != (earlier.node_id, earlier.expires)
            return node if alike and not renewed else None
    return None
