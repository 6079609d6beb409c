"""Three nodes in two places run jobs while one thing after another happens to them, and validators judge the rest."""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.bank import TABLES, Bank, assert_faithful, assert_faithful_kafka, open_bank
from cdc_testing.nodes import NodeProcess, Nodes
from cdc_testing.postgres import clock
from cdc_testing.tcp_proxy import TcpProxy

from cdc_core.errors import RetryableError
from cdc_core.store.job_values import JobRecord
from cdc_core.timestamp import Timestamp

__all__ = ["EVENTS", "Storm", "Told"]

EVENTS = ("kill", "freeze", "drain", "cut", "refuse", "restart the store")
PLACES = {"one": "region=a,zone=1", "two": "region=a,zone=2", "three": "region=b"}
PINNED = ("", "region=a", "", "region=b")
"""The execution_locality of each job in turn."""
_RECOVERY_LIMIT_S = 180.0


@dataclass(slots=True)
class Told:
    """What a storm was. Takeovers are by event, in seconds from the event: until another node had claimed the job,
    and until its high-water mark moved there. `same`: until jobs delivered that no other node could take over.
    """

    events: Counter[str] = field(default_factory=Counter)
    claimed: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    delivered: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    same: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    epochs: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return the figures as a table."""
        lines = [
            f"{'event':18} {'n':>3} {'claimed: median worst':>24} {'delivered: median worst':>24} {'same node':>10}"
        ]
        for event, count in sorted(self.events.items()):
            cells = [_median_and_worst(found[event]) for found in (self.claimed, self.delivered)]
            same = f"{max(self.same[event]):.1f}" if self.same[event] else "-"
            lines.append(f"{event:18} {count:3} {cells[0]:>24} {cells[1]:>24} {same:>10}")
        lines += [f"{name:18} rows {rows:8} epoch {self.epochs[name]}" for name, rows in sorted(self.rows.items())]
        return lines


class Storm:
    """A context manager: a store, three nodes behind a proxy each, and *jobs* jobs from the bank at *source*.

    Every second job writes to Kafka at *bootstrap_servers*, if given; the others write files.
    """

    def __init__(
        self,
        directory: Path,
        source: str,
        *,
        seed: int,
        jobs: int,
        lease_s: float,
        bootstrap_servers: str | None = None,
    ) -> None:
        self.told = Told()
        self._directory = directory
        self._source = source
        self._chance = random.Random(seed)
        self._lease_s = lease_s
        self._kafka = bootstrap_servers
        self._names = [f"job{number}" for number in range(jobs)]
        self._stack = ExitStack()
        self._proxies: dict[str, TcpProxy] = {}

    def __enter__(self) -> Storm:
        with ExitStack() as stack:
            self._store_server = stack.enter_context(EmbeddedPostgres(settings={"max_connections": "200"}))
            url = self._store_server.uri()
            self._nodes = stack.enter_context(Nodes(self._directory / "nodes", url))
            for name in PLACES:
                self._proxies[name] = stack.enter_context(TcpProxy(url))
                self._start(name)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        for name in PLACES:
            self._nodes[name].end()  # before the proxies
        self._stack.close()

    def rage(self, *, for_s: float, only: Sequence[str] = EVENTS) -> None:
        """Have events happen one after another for *for_s*; then see that every job holds all that the bank did.

        With *only*, each of these happens once at least. Raises: AssertionError.
        """
        open_bank(self._source)
        began = time.monotonic()
        with Bank(self._source, pause_s=0.03):
            for number, name in enumerate(self._names):
                self._create(number, name)
            for name in self._names:
                self._nodes.until_delivering(name)
            first = list(only)
            while first or time.monotonic() - began < for_s:
                self._happen(first.pop(0) if first else self._chance.choice(EVENTS))
        now = clock(self._source)
        for name in self._names:
            self._nodes.eventually(
                f"{name} delivers all", lambda name=name: self._nodes.high_water(name) >= now, limit_s=120
            )
        self._judge()

    def _start(self, name: str) -> NodeProcess:
        lease = self._lease_s
        options = ("--lease", f"{lease}s", "--heartbeat", f"{lease / 3}s", "--poll", "250ms", "--locality-wait", "300s")
        return self._nodes.start(name, locality=PLACES[name], options=options, store=self._proxies[name].url)

    def _create(self, number: int, name: str) -> None:
        to_kafka = self._kafka is not None and number % 2 == 1
        sink = f"kafka://{self._kafka}" if to_kafka else f"file://{self._directory / name}"
        options = {"topic_prefix": f"{name}."} if to_kafka else {}
        self._nodes.create(name, self._source, TABLES, sink, locality=PINNED[number % len(PINNED)], **options)

    def _happen(self, event: str) -> None:
        """Let *event* happen to one node, wait until every job delivers again, and note how long that took."""
        node = self._nodes[self._chance.choice(list(PLACES))]
        before = {name: self._nodes.job(name) for name in self._names}
        began = time.monotonic()
        print(f"{time.strftime('%H:%M:%S')} {event} {node.name}", flush=True)
        moving = {
            name: job.epoch
            for name, job in before.items()
            if job.node == node.name and event != "restart the store" and self._has_another(job, node.name)
        }
        restore: Callable[[], object] = lambda: None  # noqa: E731
        match event:
            case "kill":
                node.kill()
                restore = partial(self._start, node.name)
            case "freeze":
                node.freeze()
                restore = node.thaw
            case "drain":
                node.terminate()
                assert node.wait() == 0, node.log_tail()
                self._start(node.name)
            case "cut":
                self._proxies[node.name].cut()
                restore = self._proxies[node.name].mend
            case "refuse":
                self._proxies[node.name].refuse()
                restore = self._proxies[node.name].mend
            case _:
                self._store_server.kill()
                self._store_server.start()
        self._await_recovery(event, node, began, moving, restore)
        self.told.events[event] += 1

    def _await_recovery(
        self,
        event: str,
        node: NodeProcess,
        began: float,
        moving: dict[str, int],
        restore: Callable[[], object],
    ) -> None:
        claimed: set[str] = set()
        delivered: set[str] = set()
        marks: dict[str, Timestamp] = {}
        restored = False

        def recovered() -> bool:
            nonlocal restored
            since = time.monotonic() - began
            for name in self._names:
                if name in delivered:
                    continue
                try:
                    job, mark = self._nodes.job(name), self._nodes.high_water(name)
                except RetryableError:
                    return False
                assert job.state == "running", f"{name} is {job.state}: {job.reason}"
                if name in moving and job.epoch > moving[name] and job.node is not None and name not in claimed:
                    claimed.add(name)
                    self.told.claimed[event].append(since)
                if job.node is None or (name in moving and name not in claimed):
                    continue
                if mark > marks.setdefault(name, mark):
                    delivered.add(name)
                    (self.told.delivered if name in moving else self.told.same)[event].append(since)
            if not restored and claimed >= moving.keys() and since > self._lease_s + 1:
                if event == "cut" and moving:
                    assert "has not heard from the store" in node.log(), "it did not notice"
                restore()
                restored = True
            return restored and len(delivered) == len(self._names)

        self._nodes.eventually(f"all jobs deliver after: {event}", recovered, limit_s=_RECOVERY_LIMIT_S)

    def _has_another(self, job: JobRecord, name: str) -> bool:
        return any(
            each.name != name and each.locality.matches(job.locality) for each in self._nodes.store.overview().nodes
        )

    def _judge(self) -> None:
        for number, name in enumerate(self._names):
            self._nodes.store.pause_job(name, "the end")
            self.told.epochs[name] = self._nodes.until(name, "paused").epoch
            if self._kafka is not None and number % 2 == 1:
                rows = assert_faithful_kafka(self._kafka, self._source, prefix=f"{name}.").rows
            else:
                rows = assert_faithful(self._directory / name, self._source)
            self.told.rows[name] = rows


def _median_and_worst(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.1f} {max(seconds):.1f} ({len(seconds)})" if seconds else "-"
