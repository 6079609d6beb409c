"""The session of a node: renewed in a thread of its own, and over in time by the node's own clock."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from cdc_core.engine.ipc import lease_clock
from cdc_core.errors import CdcError, RetryableError
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.progress import ProgressStore

log = logging.getLogger(__name__)

_POLL_INTERVAL_S = 0.1


class Lease:
    """Keeps one session of a node alive in *store*, which is its own, until `end`.

    A session lives for *lease_s* after the last renewal that the store has confirmed, counted from before that renewal
    was sent: no other node takes its jobs earlier. The clocks of nodes and store need not agree. *former* is as in
    `Nodes.join`.
    """

    def __init__(
        self,
        store: ProgressStore,
        node: NodeRecord,
        *,
        lease_s: float,
        heartbeat_s: float,
        former: str | None = None,
    ) -> None:
        self.problems: Mapping[str, str] = {}
        """What the next renewal says of jobs that the node cannot run."""
        self.cores_used = 0
        """What it says of the cores that executors have on the node."""
        self._store = store
        self._lease_s = lease_s
        self._heartbeat_s = heartbeat_s
        self._was_unsafe = False
        sent = lease_clock()
        self.node = store.nodes.join(node, lease_s=lease_s, former=former)
        self.until = sent + lease_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease of node {node.name}", daemon=True)
        self._thread.start()

    @property
    def left_s(self) -> float:
        """How long the session lives on if the store is not heard from again; zero or less when it is over."""
        return self.until - lease_clock()

    @property
    def is_safe(self) -> bool:
        """Whether there is time left to end what runs: a third of the lease. Once it is False, it remains so.

        A renewal may come late, when what runs is being ended already: then the node must join again.
        """
        self._was_unsafe = self._was_unsafe or self.left_s <= self._lease_s / 3
        return not self._was_unsafe

    @contextmanager
    def guarding(self, extend: Callable[[float], None], abandon: Callable[[], None]) -> Iterator[None]:
        """Call *extend* with `until` several times a second, and *abandon* too when the session is not safe anymore.

        In a thread of its own: what the caller asks the store for meanwhile may take longer than the session lives.
        Neither may wait for anything.
        """
        over = threading.Event()
        name = f"guard of node {self.node.name}"
        guard = threading.Thread(target=self._guard, args=(extend, abandon, over), name=name, daemon=True)
        guard.start()
        try:
            yield
        finally:
            over.set()
            guard.join()

    def end(self, *, leave: bool) -> None:
        """Renew no more. With *leave*, end the session in the store too; an error of that is only logged."""
        self._ended.set()
        self._thread.join()
        try:
            if leave:
                self._store.nodes.leave(self.node.node_id)
        except CdcError as error:
            log.warning("node '%s' could not report that it is leaving: %s", self.node.name, error)
        self._store.close()

    def _guard(self, extend: Callable[[float], None], abandon: Callable[[], None], over: threading.Event) -> None:
        complained = False
        while not over.wait(_POLL_INTERVAL_S):
            extend(self.until)
            if self.is_safe:
                continue
            if not complained:
                log.error(
                    "node '%s' has lost contact with the store: it stops its jobs before other nodes take them over",
                    self.node.name,
                )
            complained = True
            abandon()

    def _renew(self) -> None:
        complained = False
        wait_s = self._heartbeat_s
        while not self._ended.wait(wait_s):
            sent = lease_clock()
            try:
                node = self._store.nodes.renew(
                    self.node.node_id,
                    lease_s=self._lease_s,
                    problems=dict(self.problems),
                    cores_used=self.cores_used,
                )
            except RetryableError as error:
                if not complained:
                    log.warning("node '%s' cannot renew its session: %s", self.node.name, error)
                complained, wait_s = True, min(1.0, self._heartbeat_s)
                continue
            except Exception as error:
                log.error("node '%s' cannot renew its session: %s", self.node.name, error)
                node = None
            if node is None:
                self.until = float("-inf")
                return
            if complained:
                log.info("node '%s' can renew its session again", self.node.name)
            self.node, self.until = node, sent + self._lease_s
            complained, wait_s = False, self._heartbeat_s
