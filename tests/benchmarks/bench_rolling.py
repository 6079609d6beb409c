"""A rolling restart of three nodes under load: how many rows arrive twice, and for how long a job stands still."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.context import Bench
from benchmarks.node_rig import nodes_of, options
from benchmarks.report import Figure, Target
from benchmarks.workload import TABLE, changing, create_table
from cdc_rangefeed_postgres.demo.audit import replay
from cdc_testing.kafka_following import Follower
from cdc_testing.nodes import Nodes
from cdc_testing.postgres import clock

from cdc_core.timestamp import Timestamp

_NODES = {"one": "SIGTERM", "two": "cdc drain", "three": "SIGTERM"}
"""The nodes, and how each is told to leave."""
_JOBS = 6
_KEYS = 10_000
_CHANGES_PER_S = 1_000


def run(bench: Bench) -> Iterator[Figure]:
    """Restart one node after the other. Half of the jobs write to Kafka, half write files."""
    with bench.database("bench_rolling_source") as source, nodes_of(bench, "bench_rolling") as nodes:
        create_table(source, _KEYS)
        jobs = [f"rolling{number}" for number in range(_JOBS)]
        to_files, to_kafka = jobs[::2], jobs[1::2]
        out = bench.directory / "bench_rolling" / "out"
        brokers = bench.broker.bootstrap_servers
        for name in _NODES:
            nodes.begin(name, options=options(15.0))
        for name in _NODES:
            nodes.await_join(name)
        for name in to_files:
            nodes.create(name, source, [TABLE], f"file://{out / name}")
        for name in to_kafka:
            nodes.create(name, source, [TABLE], f"kafka://{brokers}", topic_prefix=f"{name}.")
        topics = [f"{name}.{TABLE.partition('.')[2]}" for name in to_kafka]
        with changing(source, keys=_KEYS, changes_per_s=_CHANGES_PER_S):
            for name in jobs:
                nodes.until_delivering(name)
            stood = _restarted(nodes, jobs)
        now = clock(source)
        for name in jobs:
            nodes.eventually(f"{name} delivers all", lambda name=name: nodes.high_water(name) >= now)
        with Follower(brokers, topics) as follower:
            nodes.eventually("all marks are read", lambda: follower.cut() >= now)
        replayed = [replay(out / name) for name in to_files]
        counted = sum(_repeated(nodes, name) for name in jobs)
    bench.delete_topics(*topics)
    rows = follower.rows + sum(each.rows for each in replayed)
    repeats = follower.repeats + sum(each.repeats for each in replayed)
    yield Figure(
        name="drain of a node until its job has saved a step elsewhere, median",
        value=statistics.median(stood),
        unit="s",
        details={"worst": max(stood), "all": stood},
    )
    yield Figure(
        name="rows delivered twice by a rolling restart, of 1,000",
        value=1000 * repeats / rows,
        unit="rows",
        target=Target(below=10.0),
        details={"rows": rows, "repeats": repeats, "rows_repeated": counted},
    )


def _repeated(nodes: Nodes, job: str) -> int:
    """Return how many rows the job itself says were delivered twice at most."""
    progress = nodes.store.progress.load(job)
    return 0 if progress is None else int(progress.counters.get("rows_repeated", 0))


def _restarted(nodes: Nodes, jobs: list[str]) -> list[float]:
    """Restart one node after the other; return for how long each of their jobs saved nothing."""
    stood: list[float] = []
    for name, how in _NODES.items():
        node = nodes[name]
        moving = {job for job in jobs if nodes.job(job).node == name}
        began = time.monotonic()
        if how == "SIGTERM":
            node.terminate()
        else:
            subprocess.run([sys.executable, "-m", "cdc_core", "drain", name, "--store", nodes.url], check=True)
        status = node.wait()
        assert status == 0, node.log_tail()
        marks = {job: nodes.high_water(job) for job in moving}

        def all_moved(moving: set[str] = moving, marks: dict[str, Timestamp] = marks, began: float = began) -> bool:
            moved = {job for job in moving if nodes.job(job).node is not None and nodes.high_water(job) > marks[job]}
            moving -= moved
            stood.extend([time.monotonic() - began] * len(moved))
            return not moving

        nodes.eventually("the others have its jobs", all_moved)
        nodes.start(name)
    return stood
