"""Three nodes in two places run jobs while one thing after another happens to them, and validators judge the rest."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cdc_conformance.validators import CountValidator, ResolvedValidator
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.bank import TABLES, Bank, assert_faithful, assert_faithful_kafka, open_bank
from cdc_testing.kafka_reading import partitions_of, read_topics
from cdc_testing.nodes import NodeProcess, Nodes
from cdc_testing.postgres import clock
from cdc_testing.storm_emitters import HEADER, Freeze, late_files, late_messages
from cdc_testing.tcp_proxy import TcpProxy

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.errors import RetryableError
from cdc_core.store.job_values import JobRecord, NodeRecord
from cdc_core.store.values import ChangefeedRecord
from cdc_core.timestamp import Timestamp

EVENTS = ("kill", "freeze", "short freeze", "drain", "cut", "short cut", "refuse", "restart the store")
"""What may happen. A short freeze or cut is over after 0.1 to 1.5 times the lease: the node may survive it. The others
last until all jobs that another node can run have been claimed by one.
"""
PLACES = {"one": "region=a,zone=1", "two": "region=a,zone=2", "three": "region=b"}
PINNED = ("", "region=a", "region=a", "", "", "region=b", "region=b", "", "", "", "", "")
"""The execution_locality of each job in turn: four of twelve, one of either sink in either place."""
_RECOVERY_LIMIT_S = 600.0
_POLL_INTERVAL_S = 0.1
_STORE = {"max_connections": "400"}


@dataclass(slots=True, kw_only=True)
class Blow:
    """One event that has happened to *nodes*, and what ends it: `mend`, no sooner than `lasts_s` after `began`."""

    event: str
    nodes: Sequence[NodeProcess]
    began: float
    lasts_s: float
    moving: Mapping[str, int] = field(default_factory=dict)
    """The epochs of jobs that another node must claim before."""
    mend: Callable[[], object] | None = None
    claimed: set[str] = field(default_factory=set)
    delivered: set[str] = field(default_factory=set)
    marks: dict[str, Timestamp] = field(default_factory=dict)


class Storm:
    """A context manager: a store, three nodes behind a proxy each, and *jobs* jobs from the bank at *source*.

    Every second job writes to Kafka at *bootstrap_servers*, if given, whose topics must have LogAppendTime; the others
    write files.
    """

    saves = "5s"
    """How often jobs save, and emit marks."""

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
        self.figures = StormFigures()
        self._directory = directory
        self._source = source
        self._chance = random.Random(seed)
        self._lease_s = lease_s
        self._kafka = bootstrap_servers
        self._names = [f"job{number}" for number in range(jobs)]
        self._stack = ExitStack()
        self._proxies: dict[str, TcpProxy] = {}
        self._freezes: list[Freeze] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._store_server = stack.enter_context(EmbeddedPostgres(settings=_STORE))
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

    @property
    def events(self) -> Sequence[str]:
        """What may happen."""
        return EVENTS

    def lines(self, limit_s: float) -> list[str]:
        """Return the figures as tables; *limit_s* is how long a recovery may take."""
        return self.figures.lines(limit_s)

    def rage(self, *, for_s: float, every_s: float, only: Sequence[str] = ()) -> None:
        """Have events happen for *for_s*, one every *every_s* on average; then see that every job holds all.

        An event waits until all jobs have recovered from the one before. With *only*, the storm begins with these.
        Raises: AssertionError.
        """
        open_bank(self._source)
        with Bank(self._source, pause_s=0.03):
            for number, name in enumerate(self._names):
                self._create(number, name)
            for name in self._names:
                self._nodes.until_delivering(name, limit_s=_RECOVERY_LIMIT_S)
            first, pause = list(only), threading.Event()
            began = due = time.monotonic()
            while first or time.monotonic() - began < for_s:
                pause.wait(max(due - time.monotonic(), 0.0))
                due += self._chance.expovariate(1 / every_s)
                self._await_recovery(self._strike(first.pop(0) if first else self._chance.choice(self.events)))
            self.figures.lasted_s = time.monotonic() - began
        now = clock(self._source)
        for name in self._names:
            self._nodes.eventually(
                f"{name} delivers all", lambda name=name: self._nodes.high_water(name) >= now, limit_s=_RECOVERY_LIMIT_S
            )
        for name in self._names:
            Changefeeds(self._nodes.store).pause(name, "the end")
        for number, name in enumerate(self._names):
            self._nodes.until(name, "paused")
            self.figures.jobs[name] = self._judge(number, name)

    def _start(self, name: str) -> None:
        lease = self._lease_s
        options = ("--lease", f"{lease}s", "--heartbeat", f"{lease / 3}s", "--poll", "250ms")
        self._nodes.start(name, locality=PLACES[name], options=options, store=self._proxies[name].url)

    def _to_kafka(self, number: int) -> bool:
        return self._kafka is not None and number % 2 == 1

    def _create(self, number: int, name: str) -> None:
        sink, options = f"file://{self._directory / name}", {}
        if self._to_kafka(number):
            sink = f"kafka://{self._kafka}"
            options = {"topic_prefix": f"{name}.", "extra_headers": {HEADER: "${NODE_NAME}"}}
        often = {"resolved": self.saves, "min_checkpoint_frequency": self.saves}
        self._nodes.create(
            name, self._source, TABLES, sink, locality=PINNED[number % len(PINNED)], **{**often, **options}
        )

    def _strike(self, event: str) -> Blow:
        """Let *event* happen to one node. A store that is restarted is there again on return."""
        node = self._nodes[self._chance.choice(list(PLACES))]
        proxy = self._proxies[node.name]
        short = event.startswith("short ")
        lasts_s = self._lease_s * self._chance.uniform(0.1, 1.5) if short else self._lease_s + 1
        overview = self._nodes.store.claims.overview()
        moving = {
            job.name: job.epoch
            for job in overview.jobs
            if job.node == node.name and has_another(job, [node.name], overview.nodes)
        }
        print(f"{time.strftime('%H:%M:%S')} {event}: {node.name}, which has {len(moving)} others can run", flush=True)
        if short or event == "restart the store":
            moving = {}
        blow = Blow(event=event, nodes=[node], began=time.monotonic(), lasts_s=lasts_s, moving=moving)
        match event.removeprefix("short "):
            case "kill":
                node.kill()
                blow.mend = node.start
            case "freeze":
                since = time.time()
                node.freeze()

                def thaw() -> None:
                    self._freezes.append(Freeze(node.name, since, time.time()))
                    node.thaw()

                blow.mend = thaw
            case "drain":
                node.terminate()
                blow.mend, blow.lasts_s = node.start, 0.0
            case "cut":
                proxy.cut()
                blow.mend = proxy.mend
            case "refuse":
                proxy.refuse()
                blow.mend = proxy.mend
            case _:
                self._store_server.kill()
                self._store_server.start()
        self.figures.events[event] += 1
        return blow

    def _await_recovery(self, blow: Blow) -> None:
        """Return when every job delivers again, the event is over, and all nodes are there; note how long it took."""
        self._nodes.eventually(
            f"all jobs deliver after: {blow.event}",
            lambda: self._has_recovered(blow),
            limit_s=_RECOVERY_LIMIT_S,
            look_s=_POLL_INTERVAL_S,
        )

    def _has_recovered(self, blow: Blow) -> bool:
        store, figures = self._nodes.store, self.figures
        try:
            overview = store.claims.overview()
            marks = {feed.name: self._how_far(feed) for feed in store.changefeeds.all()}
        except RetryableError:
            return False
        since = time.monotonic() - blow.began
        jobs = {job.name: job for job in overview.jobs}
        for name in self._names:
            job, mark = jobs.get(name) or self._nodes.job(name), marks[name]
            assert job.state in ("running", "waiting"), f"{name} is {job.state}: {job.reason}"
            if name in blow.moving and name not in blow.claimed:
                if job.node is None or job.epoch == blow.moving[name]:
                    continue
                blow.claimed.add(name)
                figures.claimed[blow.event].append(since)
            if name not in blow.delivered and job.node is not None and mark > blow.marks.setdefault(name, mark):
                blow.delivered.add(name)
                (figures.delivered if name in blow.moving else figures.same)[blow.event].append(since)
        self._end_when_due(blow, since)
        there = {each.pid for each in overview.nodes}
        return (
            blow.mend is None
            and len(blow.delivered) == len(self._names)
            and all(process is not None and process.pid in there for process in self._processes())
        )

    def _how_far(self, feed: ChangefeedRecord) -> Timestamp:
        return feed.high_water

    def _end_when_due(self, blow: Blow, since: float) -> None:
        if blow.mend is None:
            for node in blow.nodes:
                assert node.is_running, node.log_tail()
            return
        if blow.event.startswith("drain"):
            for node in blow.nodes:
                if node.is_running:
                    return
                assert node.wait() == 0, node.log_tail()
        elif since < blow.lasts_s or blow.claimed < blow.moving.keys():
            return
        if blow.event.startswith("cut") and blow.moving:
            for node in blow.nodes:
                assert "has lost contact with the store" in node.log(), f"{node.name} did not notice\n{node.log_tail()}"
        blow.mend()
        blow.mend = None

    def _processes(self) -> list[object]:
        return [self._nodes[name].process for name in PLACES]

    def _judge(self, number: int, name: str) -> JobFigures:
        """See that consumers of the job got all, in order, from one node at a time. Raises: AssertionError."""
        count = CountValidator(least_rows=1, least_marks=1)
        if self._to_kafka(number):
            assert self._kafka is not None
            topics = [f"{name}.{table.partition('.')[2]}" for table in TABLES]
            places = [(topic.removeprefix(f"{name}."), at) for topic, at in partitions_of(self._kafka, topics)]
            resolved = ResolvedValidator(endpoints=places, each=False)
            assert_faithful_kafka(self._kafka, self._source, prefix=f"{name}.", also=(count, resolved))
            history = self._nodes.store.jobs.events(name)
            late = late_messages(read_topics(self._kafka, topics), history, self._freezes)
        else:
            assert_faithful(self._directory / name, self._source, also=(count,))
            late = late_files(self._directory / name, self._freezes)
        assert not late.wrong, f"{name}: {len(late.wrong)} came too late, such as: {'; '.join(late.wrong[:5])}"
        return JobFigures(
            sink="kafka" if self._to_kafka(number) else "files",
            locality=PINNED[number % len(PINNED)],
            epoch=self._nodes.job(name).epoch,
            rows=count.rows,
            repeats=count.repeats,
            marks=count.marks,
            late=late.after_a_thaw,
        )


def has_another(job: JobRecord, names: Collection[str], nodes: Sequence[NodeRecord]) -> bool:
    """Return whether one of *nodes* that is none of these *names* can run the job."""
    return any(each.name not in names and each.locality.matches(job.locality) for each in nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFigures:
    """What a consumer of one job got. `late` counts what a thawed node's last call added after it was replaced."""

    sink: str
    locality: str
    epoch: int
    rows: int
    repeats: int
    marks: int
    late: int


@dataclass(slots=True)
class StormFigures:
    """Recoveries are by event, in seconds from the event: until another node had claimed the job (`claimed`), and until
    its high-water mark moved there (`delivered`). `same`: until jobs delivered that no other node had to take over.
    """

    events: Counter[str] = field(default_factory=Counter)
    claimed: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    delivered: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    same: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    jobs: dict[str, JobFigures] = field(default_factory=dict)
    lasted_s: float = 0.0

    def slow(self, limit_s: float) -> int:
        """Return how many recoveries took longer than *limit_s*."""
        return sum(seconds > limit_s for found in (self.delivered, self.same) for seconds in _all(found))

    def lines(self, limit_s: float) -> list[str]:
        """Return the figures as tables; *limit_s* is how long a recovery may take."""
        total = self.events.total()
        lines = [f"{'event':18} {'n':>3} {'claimed':>20} {'delivered':>20} {'not moved':>20}   median worst (n), s"]
        for event, count in sorted(self.events.items()):
            cells = [median_and_worst(found[event]) for found in (self.claimed, self.delivered, self.same)]
            lines.append(f"{event:18} {count:3} " + " ".join(f"{cell:>20}" for cell in cells))
        cells = [median_and_worst(_all(found)) for found in (self.claimed, self.delivered, self.same)]
        lines.append(f"{'all':18} {total:3} " + " ".join(f"{cell:>20}" for cell in cells))
        recoveries = len(_all(self.delivered)) + len(_all(self.same))
        lines.append(
            f"{total} events in {self.lasted_s:.0f} s, one every {self.lasted_s / max(total, 1):.1f} s;"
            f" {self.slow(limit_s)} of {recoveries} recoveries took longer than {limit_s:g} s"
        )
        lines.append(
            f"{'job':8} {'sink':6} {'locality':10} {'epoch':>5} {'rows':>9} {'repeats':>8} {'marks':>7} {'late':>5}"
        )
        for name, job in self.jobs.items():
            counts = f"{job.epoch:5} {job.rows:9} {job.repeats:8} {job.marks:7} {job.late:5}"
            lines.append(f"{name:8} {job.sink:6} {job.locality or '-':10} {counts}")
        sums = [sum(getattr(job, what) for job in self.jobs.values()) for what in ("rows", "repeats", "marks", "late")]
        rows, repeats, marks, late = sums
        lines.append(f"{'all':8} {'':6} {'':10} {'':5} {rows:9} {repeats:8} {marks:7} {late:5}")
        return lines


def _all(found: dict[str, list[float]]) -> list[float]:
    return [seconds for of_event in found.values() for seconds in of_event]


def median_and_worst(seconds: Sequence[float] | Iterable[float]) -> str:
    """Return both, and of how many."""
    found = list(seconds)
    return f"{statistics.median(found):.1f} {max(found):.1f} ({len(found)})" if found else "-"
