"""How a node gets a session, while an earlier process of the same node may still have one."""

from __future__ import annotations

import logging
from collections.abc import Callable

from cdc_core.errors import RetryableError
from cdc_core.jobs.last_session_file import LastSessionFile
from cdc_core.jobs.lease import Lease
from cdc_core.jobs.settings import NodeSettings
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.progress import ProgressStore

__all__ = ["join"]

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
    complained = False
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
                log.info("node '%s' waits until the session of an earlier process has expired", settings.name)
                earlier = other
        except RetryableError as error:
            if not complained:
                log.warning("node '%s' cannot join: %s", settings.name, error)
            complained = True
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
