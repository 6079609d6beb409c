"""An audit of JSON files against PostgreSQL while the changefeed runs, with three differences that it must find."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.context import Bench
from benchmarks.feed import NAME
from benchmarks.file_feed import FileFeed
from benchmarks.report import Figure, Target
from benchmarks.workload import TABLE, TRANSACTION_ROWS, changing, connect, create_table

_CHANGES_PER_S = 100
_PLANTED = {"missing": 1, "extra": 1, "different": 1}
_LOST = (
    f"DELETE FROM {TABLE} WHERE id = %(last)s",
    f"UPDATE {TABLE} SET amount = amount + 1 WHERE id = %(last)s - 1",
    f"INSERT INTO {TABLE} SELECT 0, customer, city, status, note, price, amount, created FROM {TABLE} WHERE id = 1",
)
"""Changes that the publication leaves out, of rows that do not change again."""


def run(bench: Bench) -> Iterator[Figure]:
    """Deliver a table, lose three changes, and audit it while it changes. Raises: RuntimeError for another finding."""
    rows = bench.sizes.audit_rows
    with bench.database("bench_audit") as uri, bench.scratch("audit") as scratch:
        create_table(uri, rows)
        feed = FileFeed(scratch, uri)
        feed.run_once()
        _lose(uri, rows)
        with feed.running(), changing(uri, keys=rows - TRANSACTION_ROWS, changes_per_s=_CHANGES_PER_S):
            audit = _audit(scratch)
    found = {name: audit.figures[name] for name in _PLANTED}
    if found != _PLANTED:
        raise RuntimeError(f"the audit found {found} instead of {_PLANTED}")
    details = {"rows": rows, "cpu_s": audit.cpu_s, "peak_rss": audit.peak_rss, **audit.figures}
    yield Figure(
        name="audit of JSON files",
        value=rows / audit.took_s,
        unit="rows/s",
        target=Target(at_least=100_000),
        peak_rss=audit.peak_rss,
        details={"took_s": audit.took_s, **details},
    )
    yield Figure(
        name="audit: processor time of 1,000,000 rows",
        value=audit.cpu_s * 1_000_000 / rows,
        unit="s",
        target=Target(below=12.0),
        details=details,
    )


@dataclass(frozen=True, kw_only=True)
class _Audit:
    took_s: float
    cpu_s: float
    peak_rss: int
    figures: dict[str, Any]


def _lose(uri: str, last: int) -> None:
    with connect(uri) as connection:
        row = connection.execute("SELECT pubname::text FROM pg_publication").fetchone()
        assert row is not None
        connection.execute(f"ALTER PUBLICATION {row[0]} SET (publish = '')".encode())
        for statement in _LOST:
            connection.execute(statement.encode(), {"last": last})
        # Other generated columns hide from the changefeed that changes were left out.
        restored = "publish = 'insert, update, delete, truncate', publish_generated_columns = none"
        connection.execute(f"ALTER PUBLICATION {row[0]} SET ({restored})".encode())


def _audit(directory: Path) -> _Audit:
    command = [sys.executable, "-m", "cdc_core", "audit", str(directory / "feed.toml"), NAME]
    command += ["--state", str(directory / "state"), "--wait", "600", "--json", "--temporary-directory", str(directory)]
    begun = time.monotonic()
    with (directory / "audit.out").open("w+b") as out, (directory / "audit.err").open("w+b") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    took_s = time.monotonic() - begun
    lines = (directory / "audit.out").read_text().splitlines()
    if process.returncode != 1:
        raise RuntimeError(f"the audit ended with {process.returncode}: {(directory / 'audit.err').read_text()[-500:]}")
    return _Audit(took_s=took_s, cpu_s=_seconds(used), peak_rss=used.ru_maxrss * 1024, figures=json.loads(lines[-1]))


def _seconds(used: resource.struct_rusage) -> float:
    return used.ru_utime + used.ru_stime
