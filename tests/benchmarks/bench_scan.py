"""The initial scan to JSON files, end to end, beside Debezium's snapshot of the same table."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.comparison import compared
from benchmarks.context import Bench
from benchmarks.file_feed import FileFeed
from benchmarks.peer import Debezium
from benchmarks.report import Figure, Target
from benchmarks.workload import TABLE, create_table


def run(bench: Bench) -> Iterator[Figure]:
    rows = bench.sizes.scan_rows
    with bench.database("bench_scan") as uri, bench.scratch("scan") as scratch:
        create_table(uri, rows)
        ours = FileFeed(scratch, uri).run_once()
        with Debezium(bench.directory, uri, table=TABLE) as peer:
            theirs = peer.run(expect=rows)
    target = Target(at_least=450_000, per_peer=8)
    yield from compared("initial scan to JSON files", ours, theirs, rows=rows, target=target)
