"""Queries: a backlog to JSON files beside the same one without a query, and scans of which PostgreSQL reads a part."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.context import Bench
from benchmarks.feed import FeedRun
from benchmarks.file_feed import FileFeed
from benchmarks.report import Figure, Target
from benchmarks.workload import TABLE, create_table, update_rows

_KEYS = 100_000
_QUERIES = {
    "a query": f"SELECT *, upper(status) AS label FROM {TABLE} WHERE amount * 2 >= 0",
    "a query that Arrow evaluates": f"SELECT * FROM {TABLE} WHERE amount >= 0",
}
"""Every row and every column, with a computed one or without: nothing is saved by what is left out."""
_ONLY_SCAN = {"initial_scan": "only", "resolved": None, "updated": None}


def run(bench: Bench) -> Iterator[Figure]:
    """Measure a backlog of updates, as `bench_log` does, without and with each query, and scans of one table."""
    for (name, query), target in zip(_QUERIES.items(), (0.75, 0.9), strict=True):
        without, ours = (_backlog(bench, which, query=text) for which, text in (("plain", None), ("query", query)))
        yield Figure(
            name=f"log to JSON files with {name}",
            value=ours.rate,
            unit="rows/s",
            peer=without.rate,
            peer_name="without",
            target=Target(per_peer=target),
            details={"ours": ours.details(), "peer": without.details()},
        )
    yield from _scans(bench)


def _scans(bench: Bench) -> Iterator[Figure]:
    """Scan a part of a table, beside a query for which the whole table is read."""
    rows = bench.sizes.scan_rows
    few = rows // 100
    for name, read, whole, target in (
        ("1% of the rows", f"SELECT * FROM {TABLE} WHERE id <= {few}", f"WHERE id + 0 <= {few}", 20.0),
        ("2 of 8 columns", f"SELECT id, status FROM {TABLE}", "", 1.5),
    ):
        ours = _scan(bench, read)
        theirs = _scan(bench, f"SELECT * FROM {TABLE} {whole}")
        yield Figure(
            name=f"scan of a table for a query of {name}",
            value=_scan_rate(ours, rows),
            unit="rows/s",
            peer=_scan_rate(theirs, rows),
            peer_name="all read",
            target=Target(per_peer=target),
            details={"ours": ours.details(), "peer": theirs.details()},
        )


def _scan(bench: Bench, query: str) -> FeedRun:
    with bench.database("bench_query_scan") as uri, bench.scratch("scan") as scratch:
        create_table(uri, bench.sizes.scan_rows)
        return FileFeed(scratch, uri, options=_ONLY_SCAN, query=query).run_once()


def _scan_rate(run: FeedRun, rows: int) -> float:
    """Return how many of the table's *rows* a second of the scan passes, once Spark's query runs."""
    ready = max(at for at, delivered in run.saves if not delivered)
    return rows / (run.saves[-1][0] - ready)


def _backlog(bench: Bench, name: str, *, query: str | None) -> FeedRun:
    with bench.database(f"bench_query_{name}") as uri, bench.scratch(name) as scratch:
        create_table(uri, _KEYS)
        feed = FileFeed(scratch, uri, query=query)
        feed.run_once()
        update_rows(uri, bench.sizes.log_changes, keys=_KEYS)
        return feed.run_once()
