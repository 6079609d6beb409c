"""The initial scan to JSON files, end to end, beside Debezium's snapshot of the same table."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.context import Bench
from benchmarks.feed import Feed
from benchmarks.peer import Debezium
from benchmarks.report import Figure, Target
from benchmarks.workload import TABLE, create_table

__all__ = ["run"]


def run(bench: Bench) -> Iterator[Figure]:
    rows = bench.sizes.scan_rows
    with bench.database("bench_scan") as uri, bench.scratch("scan") as scratch:
        create_table(uri, rows)
        ours = Feed(scratch, uri).run_once()
        with Debezium(bench.directory, uri, table=TABLE) as peer:
            theirs = peer.run(expect=rows)
    assert ours.rows == rows, f"{ours.rows} rows delivered, {rows} expected"
    yield Figure(
        name="initial scan to JSON files",
        value=ours.rate,
        unit="rows/s",
        peer=theirs.rate,
        peer_name="Debezium",
        target=Target(at_least=450_000, per_peer=8),
        peak_rss=ours.peak_rss,
        details={"ours": ours.details(), "peer": theirs.details()},
    )
    yield Figure(
        name="initial scan to JSON files, from the start of query and engine",
        value=ours.rate_of_query,
        unit="rows/s",
        peer=theirs.rate_of_engine,
        peer_name="Debezium",
    )
    yield Figure(
        name="initial scan to JSON files, from the start of the processes",
        value=ours.rate_with_start,
        unit="rows/s",
        peer=theirs.rate_with_start,
        peer_name="Debezium",
    )
