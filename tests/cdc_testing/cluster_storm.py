"""A storm over nodes that are a Spark cluster, on hosts with networks and disks of their own. Needs root."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Self
from urllib.parse import urlsplit

import psutil
import psycopg
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.java_process import free_port
from cdc_sink_kafka.demo.listeners import Listener
from cdc_sink_kafka.demo.servers import KafkaBroker
from cdc_testing.hosts import OUTSIDE, STORE, Host
from cdc_testing.node_storm import PLACES, Blow, Storm, has_another, median_and_worst
from cdc_testing.nodes import Nodes
from cdc_testing.postgres import clock
from cdc_testing.storm_emitters import Freeze

from cdc_core.store.job_values import NodeRecord, Overview

_JOINER = "four"
_TELL_S = 30.0
_SECRET = "only-the-nodes-of-the-storm-know-it"
_ONE = ("coordinator", "worker", "leader")
CLUSTER_EVENTS = (
    *(f"{harm} {whom}" for harm in ("kill", "crash", "freeze") for whom in (*_ONE, "two", "all")),
    *(f"{harm} {whom}" for harm in ("cut", "drain") for whom in _ONE),
    "join",
)
"""Of the coordinator of a job, of a node without a job if there is one, of the one that leads, of two, of all: the
process is killed, all processes are killed or stopped, what they send to the store does not arrive, or it leaves.
"""


class HostsBroker(KafkaBroker):
    """A broker that hosts reach too."""

    def __init__(self, *, settings: Mapping[str, str]) -> None:
        controller = free_port()
        super().__init__(settings=settings, controller_ports=[controller])
        port = self._ports["PLAINTEXT"]
        self._settings |= {
            "listeners": f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{OUTSIDE}:{port}",
        }

    def address(self, listener: Listener) -> str:
        return super().address(listener).replace("127.0.0.1", OUTSIDE)


def reachable(server: EmbeddedPostgres, address: str) -> str:
    """Let hosts reach *server* at *address*, where it must listen, and return its URI there."""
    with (server.directory / "data" / "pg_hba.conf").open("a") as rules:
        rules.write("host all,replication all 10.77.0.0/24 scram-sha-256\n")
    with psycopg.connect(server.uri(user="postgres")) as connection:
        connection.execute("SELECT pg_reload_conf()")
    return server.uri().replace("127.0.0.1", address)


class ClusterStorm(Storm):
    """As `Storm`, on hosts at a `Bridge`, for jobs that run on all nodes.

    Hosts must reach *source* and *bootstrap_servers*.

    `after` has how many seconds after an event another node led, and each job had an executor at each of its nodes.
    `kept` and `lost` count executors of living hosts whose jobs no event had touched, at the end of one.
    """

    kept = lost = 0
    saves = "500ms"  # so that most events happen in the middle of a step

    def __enter__(self) -> Self:
        self.after: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        os.environ["CDC_CLUSTER_SECRET"] = _SECRET
        with ExitStack() as stack:
            names = [*PLACES, _JOINER]
            self._hosts = {
                name: stack.enter_context(Host(name, number, self._directory / "nodes", names))
                for number, name in enumerate(names, start=1)
            }
            settings = {"max_connections": "400", "listen_addresses": f"127.0.0.1,{STORE}"}
            server = stack.enter_context(EmbeddedPostgres(settings=settings))
            self._url = reachable(server, STORE)
            self._nodes = stack.enter_context(Nodes(self._directory / "nodes", self._url))
            for name in PLACES:
                self._begin(name)
            for name in PLACES:
                self._nodes.await_join(name)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        for host in self._hosts.values():
            host.kill()
        self._stack.close()

    @property
    def events(self) -> Sequence[str]:
        return CLUSTER_EVENTS

    def lines(self, limit_s: float) -> list[str]:
        """Return the figures of the storm as `StormFigures.lines` does, and those of the cluster."""
        lines = self.figures.lines(limit_s)
        for what, found in self.after.items():
            lines += [f"{what:40} {event:20} {median_and_worst(seconds)}" for event, seconds in sorted(found.items())]
        return [*lines, f"executors that no event touched: {self.kept} kept, {self.lost} lost"]

    def _begin(self, name: str) -> None:
        lease = self._lease_s
        options = ["--lease", f"{lease}s", "--heartbeat", f"{lease / 3}s", "--poll", "250ms"]
        options += ["--cores", "1", "--memory", "2gb", "--spark", "master=nodes"]
        place, within = PLACES.get(name, "region=a,zone=3"), self._hosts[name].within
        self._nodes.begin(name, locality=place, options=options, store=self._url, within=within)

    def _strike(self, event: str) -> Blow:
        harm, _, whom = event.partition(" ")
        overview, leader = self._nodes.store.claims.overview(), self._nodes.store.cluster.poll().leader
        hurt = self._victims(whom, overview, leader)
        hosts = [self._hosts[name] for name in hurt]
        moving = {
            job.name: job.epoch for job in overview.jobs if job.node in hurt and has_another(job, hurt, overview.nodes)
        }
        at = ", ".join(f"{job.name} at {job.node}" for job in overview.jobs if job.name in self._names)
        print(f"{time.strftime('%H:%M:%S')} {event}: {hurt}; {at}; {leader and leader.name} leads", flush=True)
        blow = Blow(event=event, nodes=[], began=time.monotonic(), lasts_s=self._lease_s + 1, moving=moving)
        self._tell_after = _TELL_S
        self._awaited = {"executors everywhere"} | ({"another leads"} if leader and leader.name in hurt else set())
        self._led_by = leader and leader.node_id
        self._epochs = {job.name: job.epoch for job in overview.jobs if job.node not in hurt}
        living = [name for name in PLACES if name not in hurt]
        self._untouched = {pid for name in living for pid, driver in self._executors_at(name) if driver in living}
        since = time.time()
        for name, host in zip(hurt, hosts, strict=True):
            match harm:
                case "kill":
                    self._nodes[name].kill()
                case "crash":
                    host.kill()
                    self._nodes[name].wait()
                case "freeze":
                    host.freeze()
                case "cut":
                    host.cut(STORE)
                case "drain":
                    self._nodes[name].terminate()
        if harm == "join":
            self._begin(_JOINER)
            self._awaited.add("executors at one that joins")

        def mend() -> None:
            self._count_untouched()
            for name, host in zip(hurt, hosts, strict=True):
                match harm:
                    case "kill" | "crash" | "drain":
                        self._nodes[name].start()
                    case "freeze":
                        self._freezes.append(Freeze(name, since, time.time()))
                        host.thaw()
                    case "cut":
                        host.mend(STORE)
            if harm == "join":
                self._nodes[_JOINER].terminate()
                self._nodes[_JOINER].wait()

        blow.mend = mend
        blow.nodes = [self._nodes[name] for name in hurt]
        blow.marks = dict.fromkeys(self._names, clock(self._source))
        self.figures.events[event] += 1
        return blow

    def _victims(self, whom: str, overview: Overview, leader: NodeRecord | None) -> list[str]:
        names = list(PLACES)
        coordinators = sorted({job.node for job in overview.jobs if job.node in names})
        match whom:
            case "":
                return []
            case "coordinator":
                return [self._chance.choice(coordinators)]
            case "worker":
                return [self._chance.choice([name for name in names if name not in coordinators] or names)]
            case "leader" if leader is not None:
                return [leader.name]
            case "two":
                return self._chance.sample(names, 2)
        return names

    def _has_recovered(self, blow: Blow) -> bool:
        """Return whether all is as `Storm` says, and each job has one executor at each node that it may run at."""
        since, overview = time.monotonic() - blow.began, self._nodes.store.claims.overview()
        if "another leads" in self._awaited:
            leader = self._nodes.store.cluster.poll().leader
            self._note("another leads", blow, since, leader is not None and leader.node_id != self._led_by)
        if "executors at one that joins" in self._awaited:
            joined = any(node.name == _JOINER for node in overview.nodes) and not self._amiss(overview)
            self._note("executors at one that joins", blow, since, joined)
            return False
        if not super()._has_recovered(blow):
            return False
        amiss = self._amiss(overview)
        self._note("executors everywhere", blow, since, not amiss)
        if amiss and since >= self._tell_after:
            self._tell_after = since + _TELL_S
            print(f"{time.strftime('%H:%M:%S')} after {since:.0f} s: {amiss}", flush=True)
        return not self._awaited

    def _count_untouched(self) -> None:
        if all(self._nodes.job(name).epoch == epoch for name, epoch in self._epochs.items()):
            kept = sum(map(psutil.pid_exists, self._untouched))
            self.kept, self.lost = self.kept + kept, self.lost + len(self._untouched) - kept
            if kept < len(self._untouched):
                print(f"{len(self._untouched) - kept} of {len(self._untouched)} executors were lost", flush=True)

    def _note(self, what: str, blow: Blow, since: float, holds: bool) -> None:
        if holds:
            self._awaited.discard(what)
            self.after[what][blow.event].append(since)

    def _amiss(self, overview: Overview) -> list[str]:
        """Return at which nodes jobs of which coordinators have more or fewer executors than one each."""
        wanted: Counter[tuple[str, str | None]] = Counter(
            (node.name, job.node)
            for job in overview.jobs
            for node in overview.nodes
            if job.name in self._names and node.locality.matches(job.locality)
        )
        found: Counter[tuple[str, str | None]] = Counter(
            (name, driver) for name in self._hosts for _, driver in self._executors_at(name)
        )
        return [f"{at}: {found[at]}, not {wanted[at]}" for at in wanted | found if found[at] != wanted[at]]

    def _executors_at(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield each executor that runs at a host, and at which host its driver is."""
        names = {host.address: name for name, host in self._hosts.items()}
        for pid in self._hosts[name].pids():
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                arguments = psutil.Process(pid).cmdline()
                if (
                    "org.apache.spark.executor.CoarseGrainedExecutorBackend" in arguments
                    and "--driver-url" in arguments
                ):
                    url = urlsplit(arguments[arguments.index("--driver-url") + 1])
                    yield pid, names[url.hostname or ""]
