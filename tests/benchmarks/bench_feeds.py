"""What changefeeds of one process take, idle and busy: memory, and processor time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
from benchmarks.context import Bench
from benchmarks.report import Figure, Target
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres

from cdc_core.store.progress import ProgressStore, store_url

_MIB = 1024**2
_MAX_FEEDS = 20
_SETTINGS = {"max_replication_slots": "60", "max_wal_senders": "60"}
_START_LIMIT_S = 400.0
_MEASURED_S = 20.0
_ROWS_PER_S = 200
"""Rows that each busy changefeed gets."""


def run(bench: Bench) -> Iterator[Figure]:
    with EmbeddedPostgres(settings=_SETTINGS) as server, bench.scratch("feeds") as scratch:
        uri = server.uri()
        with psycopg.connect(uri, autocommit=True) as connection:
            for number in range(_MAX_FEEDS):
                connection.execute(f"CREATE TABLE t{number} (id bigserial PRIMARY KEY, v text)")
            seen: dict[str, dict[int, tuple[float, float]]] = {"idle": {}, "busy": {}}
            for feeds in (1, 5, _MAX_FEEDS):
                with _running(scratch / str(feeds), uri, feeds) as process:
                    seen["idle"][feeds] = _measured(process, connection, feeds, busy=False)
                    seen["busy"][feeds] = _measured(process, connection, feeds, busy=True)
    for kind, found in seen.items():
        for feeds, (memory, cores) in found.items():
            noun = "changefeed" if feeds == 1 else "changefeeds"
            yield Figure(name=f"{feeds} {kind} {noun}: memory", value=memory, unit="bytes")
            yield Figure(name=f"{feeds} {kind} {noun}: processor", value=cores, unit="cores")
        (least, most), further = (found[1], found[_MAX_FEEDS]), _MAX_FEEDS - 1
        memory, cores = ((most[place] - least[place]) / further for place in (0, 1))
        targets = (Target(below=200 * _MIB), Target(below=0.04)) if kind == "idle" else (None, None)
        yield Figure(name=f"each further {kind} changefeed: memory", value=memory, unit="bytes", target=targets[0])
        yield Figure(name=f"each further {kind} changefeed: processor", value=cores, unit="cores", target=targets[1])


@contextmanager
def _running(directory: Path, uri: str, feeds: int) -> Iterator[psutil.Process]:
    """Run so many changefeeds with `cdc run`; yield the process once all of them have saved a step."""
    directory.mkdir(parents=True)
    file = directory / "feeds.toml"
    file.write_text(
        "".join(
            f'[changefeed.f{feeds}_{number}]\nsource = "{uri}"\ntables = ["t{number}"]\n'
            f'sink = "file://{directory}/out{number}"\n[changefeed.f{feeds}_{number}.options]\nresolved = "10s"\n'
            for number in range(feeds)
        )
    )
    with (directory / "log").open("w") as log:
        command = [sys.executable, "-m", "cdc_core", "run", str(file)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        store, deadline = ProgressStore(store_url(directory / ".cdc")), time.monotonic() + _START_LIMIT_S
        for number in range(feeds):
            while not (
                (progress := store.progress.load(f"f{feeds}_{number}")) and progress.counters.get("steps", 0) > 1
            ):
                assert process.poll() is None, (directory / "log").read_text()[-3000:]
                assert time.monotonic() < deadline, "the changefeeds do not begin"
                time.sleep(0.5)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(120)


def _measured(
    process: psutil.Process, connection: psycopg.Connection[tuple[object, ...]], feeds: int, *, busy: bool
) -> tuple[float, float]:
    """Return the memory (proportional set size) of the processes, and the cores that they use."""
    time.sleep(5.0)
    began, used = time.monotonic(), _cpu_s(process)
    memory = 0
    while time.monotonic() - began < _MEASURED_S:
        if busy:
            for number in range(feeds):
                connection.execute(f"INSERT INTO t{number} (v) SELECT 'x' FROM generate_series(1, {_ROWS_PER_S})")
        memory = max(memory, _memory(process))
        time.sleep(1.0)
    return memory, (_cpu_s(process) - used) / (time.monotonic() - began)


def _tree(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _memory(process: psutil.Process) -> int:
    total = 0
    for each in _tree(process):
        try:
            total += each.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total


def _cpu_s(process: psutil.Process) -> float:
    """Return the processor seconds of all processes so far, those that have ended included."""
    total = 0.0
    for each in _tree(process):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
