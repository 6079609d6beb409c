"""Queries: a backlog to JSON files beside the same one without a query, and scans of which PostgreSQL reads a part."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.context import Bench
from benchmarks.feed import FeedRun
from benchmarks.file_feed import FileFeed
from benchmarks.report import Figure, Target
from benchmarks.workload import TABLE, create_table, update_rows

__all__ = ["run"]

_KEYS = 100_000
_QUERY = f"SELECT *, upper(status) AS label FROM {TABLE} WHERE amount * 2 >= 0"
"""Every row, every column and a computed one: nothing is saved by what is left out."""


def run(bench: Bench) -> Iterator[Figure]:
    """Measure a backlog of updates, as `bench_log` does, with either changefeed, and scans of one table."""
    without, ours = (_backlog(bench, name, query=query) for name, query in (("plain", None), ("query", _QUERY)))
    yield Figure(
        name="log to JSON files with a query",
        value=ours.rate,
        unit="rows/s",
        peer=without.rate,
        peer_name="without",
        target=Target(per_peer=0.6),
        details={"ours": ours.details(), "peer": without.details()},
    )
    yield from _scans(bench)


def _scans(bench: Bench) -> Iterator[Figure]:
    """Scan a part of a table, beside a query for which the whole table is read."""
    rows = bench.sizes.scan_rows
    with bench.database("bench_query_scan") as uri, bench.scratch("scan") as scratch:
        create_table(uri, rows)
        few = rows // 100
        for name, read, whole, target in (
            ("1 % of the rows", f"SELECT * FROM {TABLE} WHERE id <= {few}", f"WHERE id + 0 <= {few}", 20.0),
            ("2 of 8 columns", f"SELECT id, status FROM {TABLE}", "", 1.5),
        ):
            restricted = FileFeed(scratch / f"{target}", uri, query=read).run_once()
            all_read = FileFeed(scratch / f"{target}_all", uri, query=f"SELECT * FROM {TABLE} {whole}").run_once()
            yield Figure(
                name=f"scan for a query of {name}",
                value=rows / _scan_s(restricted),
                unit="rows of the table/s",
                peer=rows / _scan_s(all_read),
                peer_name="all read",
                target=Target(per_peer=target),
                details={"ours": restricted.details(), "peer": all_read.details()},
            )


def _scan_s(run: FeedRun) -> float:
    """Return how long the scan took, from the start of Spark's query."""
    return run.complete_s - run.saves[0][0]


def _backlog(bench: Bench, name: str, *, query: str | None) -> FeedRun:
    with bench.database(f"bench_query_{name}") as uri, bench.scratch(name) as scratch:
        create_table(uri, _KEYS)
        feed = FileFeed(scratch, uri, query=query)
        feed.run_once()
        update_rows(uri, bench.sizes.log_changes, keys=_KEYS)
        return feed.run_once()
