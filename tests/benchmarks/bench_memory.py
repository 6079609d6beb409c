"""Peak resident memory while reading a long backlog, and one transaction larger than memory should hold."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.context import Bench
from benchmarks.file_feed import FileFeed
from benchmarks.processes import watched
from benchmarks.report import GIB, Figure, Target
from benchmarks.workload import create_table, insert_at_once, update_rows

_KEYS = 100_000
_SAMPLE_S = 0.1


def run(bench: Bench) -> Iterator[Figure]:
    sizes = bench.sizes
    with bench.database("bench_memory") as uri, bench.scratch("memory") as scratch:
        create_table(uri, _KEYS)
        feed = FileFeed(scratch, uri)
        feed.run_once()
        update_rows(uri, sizes.backlog_changes, keys=_KEYS)
        yield from _measured(bench, feed, f"backlog of {sizes.backlog_changes:,} changes", sizes.backlog_changes)
        insert_at_once(uri, sizes.transaction_rows, after=_KEYS)
        yield from _measured(bench, feed, f"transaction of {sizes.transaction_rows:,} rows", sizes.transaction_rows)


def _measured(bench: Bench, feed: FileFeed, what: str, rows: int) -> Iterator[Figure]:
    with watched(bench.server.pid, every_s=_SAMPLE_S) as server:
        ours = feed.run_once(sample_s=_SAMPLE_S)
    assert ours.rows == rows, f"{ours.rows} rows delivered, {rows} expected"
    for role, peak in sorted(ours.usage.peak_by_role().items(), key=lambda item: -item[1]):
        if role != "other":  # what shells and the like take on the way
            yield Figure(name=f"{what}: largest {role}", value=peak, unit="bytes", target=Target(below=GIB))
    yield Figure(
        name=f"{what}: PostgreSQL without shared memory",
        value=server.private,
        unit="bytes",
        details={"ours": ours.details()},
    )
    yield Figure(name=f"{what}: rate", value=ours.rate, unit="rows/s", peak_rss=ours.peak_rss)
