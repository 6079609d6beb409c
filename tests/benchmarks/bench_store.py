"""What nodes and idle jobs ask of the store: connections, transactions a second, and its server's processor time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil
from benchmarks.context import Bench
from benchmarks.node_rig import nodes_of, options
from benchmarks.report import Figure
from benchmarks.workload import TABLE, connect, create_table

_NODES = ("one", "two", "three")
_FULL_JOBS = 20
_WINDOW_S = 30.0
_ROWS = 100


def run(bench: Bench) -> Iterator[Figure]:
    """Measure three nodes without a job, then with jobs of quiet tables that save as often as they can."""
    jobs = max(3, round(_FULL_JOBS * bench.sizes.kills / 20))
    with bench.database("bench_store_source") as source, nodes_of(bench, "bench_store") as nodes:
        create_table(source, _ROWS)
        for name in _NODES:
            nodes.start(name, options=options(15.0, max_jobs=jobs))
        yield from _figures(bench, "three nodes, no job")
        for number in range(jobs):
            nodes.create(f"feed{number}", source, [TABLE], f"file://{bench.directory / 'bench_store' / str(number)}")
        for number in range(jobs):
            nodes.until_delivering(f"feed{number}")
        yield from _figures(bench, f"three nodes, {jobs} jobs without changes", jobs=jobs)


def _figures(bench: Bench, what: str, **details: int) -> Iterator[Figure]:
    """Measure for a while. The processor time is that of the whole server: it serves the jobs' source too."""
    transactions, cpu = _transactions(bench), _cpu_s(bench)
    began = time.monotonic()
    time.sleep(_WINDOW_S)
    took = time.monotonic() - began
    rate = (_transactions(bench) - transactions) / took
    yield Figure(name=f"transactions of the store, {what}", value=rate, unit="/s", details=details)
    yield Figure(name=f"connections to the store, {what}", value=_connections(bench), unit="connections")
    share = {pid: used - cpu.get(pid, 0.0) for pid, used in _cpu_s(bench).items()}
    yield Figure(name=f"processor of the server, {what}", value=sum(share.values()) / took, unit="cores")


def _transactions(bench: Bench) -> int:
    query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'bench_store'"
    with connect(bench.server.uri()) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _connections(bench: Bench) -> int:
    with connect(bench.server.uri()) as connection:
        row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = 'bench_store'").fetchone()
    assert row is not None
    return int(row[0])


def _cpu_s(bench: Bench) -> dict[int, float]:
    """Return the seconds that each process of the server that is alive now has used."""
    used = {}
    for process in psutil.Process(bench.server.pid).children():
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        used[process.pid] = times.user + times.system
    return used
