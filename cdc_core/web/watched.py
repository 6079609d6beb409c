"""What one process exposes: the metrics of its changefeeds, as the progress store has them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cdc_core.changefeeds.reading import Reading
from cdc_core.errors import CdcError
from cdc_core.store.job_values import RESTING, RUNNABLE, JobRecord, NodeRecord
from cdc_core.store.progress import ProgressStore
from cdc_core.store.reports import Report
from cdc_core.store.samples import changefeed_samples, job_samples
from cdc_core.telemetry import metrics
from cdc_core.telemetry.metrics import Sample

_FRESH_S = 1.0
"""What was read so recently is not read again: several scrapers cost the store no more than one."""
_WITHOUT_NODE = RUNNABLE | RESTING | {"waiting"}
"""States in which a job that no node runs has metrics all the same."""
_LAST_S = 1.0
"""How long the end of a process may wait for a store that does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The store at one moment."""

    reports: Sequence[Report] = ()
    jobs: Sequence[JobRecord] = ()
    nodes: Sequence[NodeRecord] = ()
    took_s: float = 0.0

    @property
    def left(self) -> frozenset[str]:
        """The names of the changefeeds that nobody runs and that have metrics all the same."""
        return frozenset(report.known.name for report in self.reports if _is_left(report))


def _is_left(report: Report) -> bool:
    if report.job is None:
        return not report.is_alive
    return report.job.node is None and report.job.state in _WITHOUT_NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """What the node *name* exposes. *samples* are what it counts itself.

    Each job has metrics at one node: at the one that runs it, otherwise at the one that has been alive for longest. So
    does what `cdc run` has run and does not run now.
    """

    name: str
    samples: Callable[[], Sequence[Sample]]

    def chosen(self, seen: Seen) -> frozenset[str]:
        """Return the names of the changefeeds whose metrics this node exposes."""
        first = min(seen.nodes, key=lambda node: (node.started, node.node_id), default=None)
        leads = first is not None and first.name == self.name
        return frozenset(job.name for job in seen.jobs if job.node == self.name) | (seen.left if leads else frozenset())

    def problem(self, seen: Seen) -> str | None:
        """Return why the node takes no job now, None when it does."""
        me = next((node for node in seen.nodes if node.name == self.name), None)
        if me is None:
            return "the node has not joined the store"
        return "the node is draining" if me.draining else None

    def node_samples(self, seen: Seen) -> Iterator[Sample]:
        me = next((node for node in seen.nodes if node.name == self.name), None)
        yield Sample(metrics.NODE_JOINED, me is not None)
        yield Sample(metrics.NODE_DRAINING, me is not None and me.draining)
        yield Sample(metrics.NODE_JOBS, sum(job.node == self.name for job in seen.jobs))
        yield Sample(metrics.NODE_LEADS, me is not None and me.leads)
        yield Sample(metrics.NODE_CORES, 0 if me is None else me.cores)
        yield from self.samples()
        yield from job_samples(seen.jobs, seen.nodes)


class Watched:
    """Reads the store at *url* when it is asked for samples, at most once a second. Safe with several threads.

    Of a node, *node* says what it exposes; of a run these are its changefeeds *names*; of a server, without either,
    what nobody runs while no node is alive. While the store cannot be read, ages and lags still grow, and
    `cdc_store_up` is 0.
    """

    def __init__(self, url: str, *, names: frozenset[str] | None = None, node: NodeView | None = None) -> None:
        self._changefeeds = Reading(ProgressStore(url, alone=True))
        self._names, self._node = names, node
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._seen, self._up = Seen(), False

    def samples(self) -> list[Sample]:
        """Return all samples as of now."""
        seen, up = self._fresh()
        return list(self._of(seen, up=up))

    def problem(self) -> str | None:
        """Return why this process cannot do its work now, None when it can."""
        seen, up = self._fresh()
        if not up:
            return "the store cannot be read"
        return None if self._node is None else self._node.problem(seen)

    def close(self) -> None:
        """Close the connection to the store; return without that while the store does not answer a thread."""
        if self._lock.acquire(timeout=_LAST_S):
            try:
                self._changefeeds.store.close()
            finally:
                self._lock.release()

    def _fresh(self) -> tuple[Seen, bool]:
        with self._lock:
            if time.monotonic() - self._read_at >= _FRESH_S:
                self._read()
                self._read_at = time.monotonic()
            return self._seen, self._up

    def _read(self) -> None:
        began = time.monotonic()
        try:
            found = self._changefeeds.reports()
            jobs = [report.job for report in found if report.job is not None]
            nodes = self._changefeeds.living_nodes() if self._names is None or self._node is not None else []
            self._seen, self._up = Seen(reports=found, jobs=jobs, nodes=nodes, took_s=time.monotonic() - began), True
        except CdcError:
            self._up = False

    def _chosen(self, seen: Seen) -> frozenset[str]:
        if self._node is not None:
            return self._node.chosen(seen)
        return (frozenset() if seen.nodes else seen.left) if self._names is None else self._names

    def _of(self, seen: Seen, *, up: bool) -> Iterator[Sample]:
        now = datetime.now(UTC)
        names = self._chosen(seen)
        for report in seen.reports:
            if report.known.name in names:
                yield from changefeed_samples(replace(report, now=max(now, report.now)))
        yield Sample(metrics.STORE_UP, up)
        yield Sample(metrics.STORE_READ_SECONDS, seen.took_s)
        if self._node is not None:
            yield from self._node.node_samples(seen)
