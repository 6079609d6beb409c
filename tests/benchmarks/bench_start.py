"""From the start of the command to the first row at its destination."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.context import Bench
from benchmarks.report import Figure, Target
from benchmarks.workload import TABLE, create_table

_BEFORE = "CDC_BENCH_BEFORE"
"""Environment variable: the Python of another checkout, whose start is measured in turns with ours."""
_ROWS = 1000
_TIMES = 5
_LIMIT_S = 120.0


def run(bench: Bench) -> Iterator[Figure]:
    """Measure `cdc run` on a table of 1,000 rows until its first file has been renamed into place: median of five.

    Each run is a new changefeed. A run before them does not count: it leaves what later starts use.
    """
    before = os.environ.get(_BEFORE)
    pythons = {"ours": sys.executable, **({} if before is None else {"before": before})}
    taken: dict[str, list[float]] = {name: [] for name in pythons}
    with bench.database("bench_start") as uri, bench.scratch("start") as scratch:
        create_table(uri, _ROWS)
        for number in range(_TIMES + 1):
            for name, python in pythons.items():
                taken[name].append(_first_file_s(python, uri, scratch / f"{name}{number}"))
    counted = {name: seconds[1:] for name, seconds in taken.items()}
    yield Figure(
        name="start of cdc run to the first row in a file",
        value=statistics.median(counted["ours"]),
        unit="s",
        peer=None if before is None else statistics.median(counted["before"]),
        peer_name="before",
        target=Target(below=4.5),
        details=dict(taken),
    )


def _first_file_s(python: str, uri: str, directory: Path) -> float:
    directory.mkdir()
    file, output, log = directory / "feed.toml", directory / "out", directory / "cdc.log"
    file.write_text(
        f'[changefeed.{directory.name}]\nsource = "{uri}"\ntables = ["{TABLE}"]\n'
        f'sink = "file://{output.absolute()}"\nformat = "json"\n'
    )
    started = time.time()
    with (
        log.open("wb") as told,
        # Python looks for modules in the working directory first, and this one may be the other version's.
        subprocess.Popen(
            [python, "-m", "cdc_core", "run", str(file)], cwd=log.parent, stdout=told, stderr=told
        ) as process,
    ):
        try:
            while not (files := list(output.glob("**/*.ndjson"))):
                if process.poll() is not None or time.time() - started > _LIMIT_S:
                    raise RuntimeError(f"no row arrived: {log.read_text()[-1000:]}")
                time.sleep(0.02)
            return min(path.stat().st_ctime for path in files) - started
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
