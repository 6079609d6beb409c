"""A backfill after ALTER TABLE, beside the initial scan of the same table, both with 20,000 changes a second."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from benchmarks.context import Bench
from benchmarks.file_feed import FileFeed
from benchmarks.processes import Usage
from benchmarks.report import Figure, Target
from benchmarks.workload import TABLE, TRANSACTION_ROWS, changing, connect, create_table

_CHANGES_PER_S = 20_000
_KEYS = 100_000
_FIELDS = pa.schema(
    [("after", pa.struct([("id", pa.int64()), ("created", pa.timestamp("us", "UTC"))])), ("updated", pa.string())]
)


@dataclass(frozen=True, kw_only=True)
class _Delivered:
    """What came to files: distinct keys, the rows of the scan with their rate, and the latencies of the changes.

    A row that is moved behind the blocks to scan, by a change, comes with that change only.
    The rate is counted from the first file of the scan to the last, without the rows of the first.
    """

    keys: int
    scanned: int
    rate: float
    latencies: pa.ChunkedArray
    usage: Usage

    def latency(self, share: float) -> float:
        return float(pc.quantile(self.latencies, share)[0].as_py())


def run(bench: Bench) -> Iterator[Figure]:
    rows = bench.sizes.backfill_rows
    with bench.database("bench_backfill") as uri, bench.scratch("backfill") as scratch:
        create_table(uri, rows)
        feed = FileFeed(scratch, uri, options={"min_checkpoint_frequency": "0s"})
        with changing(uri, keys=_KEYS, changes_per_s=_CHANGES_PER_S):
            with feed.running() as usage:
                feed.await_resolved(0.001)
            first = _delivered(feed.data_files(), usage)
            before = set(feed.data_files())
            with feed.running() as usage:
                feed.await_resolved(time.time())
                with connect(uri) as connection:
                    connection.execute(f"ALTER TABLE {TABLE} ADD COLUMN region text DEFAULT 'europe'")
                altered = time.time()
                feed.await_resolved(altered)
            again = _delivered([path for path in feed.data_files() if path.stat().st_ctime >= altered], usage)
            assert before.isdisjoint(path for path in feed.data_files() if path.stat().st_ctime >= altered)
    for name, found in (("initial scan", first), ("backfill", again)):
        assert found.keys == rows, f"the {name} and the changes have {found.keys} of {rows} rows"
    details = {
        "scanned": again.scanned,
        "changes": len(again.latencies),
        "peak_rss_by_role": again.usage.peak_by_role(),
        "initial_scan": {
            "latency_p50_s": first.latency(0.5),
            "latency_p99_s": first.latency(0.99),
            "peak_rss_by_role": first.usage.peak_by_role(),
        },
    }
    yield Figure(
        name="backfill to JSON files at 20,000 changes/s",
        value=again.rate,
        unit="rows/s",
        peer=first.rate,
        peer_name="initial scan",
        target=Target(per_peer=0.8),
        peak_rss=again.usage.peak,
        details=details,
    )
    for share in (0.5, 0.99):
        yield Figure(
            name=f"latency of changes during the backfill, p{share * 100:.0f}",
            value=again.latency(share),
            unit="s",
            peer=first.latency(share),
            peer_name="initial scan",
        )


def _delivered(files: Sequence[Path], usage: Usage) -> _Delivered:
    """Read *files*. All rows of a round have one timestamp, and are more than those of a transaction of the writer."""
    parse = pyarrow.json.ParseOptions(explicit_schema=_FIELDS, unexpected_field_behavior="ignore")
    tables = [pyarrow.json.read_json(path, parse_options=parse) for path in files]
    visible = pa.array(np.repeat([path.stat().st_ctime for path in files], [len(table) for table in tables]))
    table = pa.concat_tables(tables).append_column("visible", visible)
    counts = pc.value_counts(table["updated"])
    rounds = counts.filter(pc.greater(counts.field("counts"), TRANSACTION_ROWS)).field("values")
    is_scan = pc.is_in(table["updated"], value_set=rounds)
    scanned, changes = table["visible"].filter(is_scan), table.filter(pc.invert(is_scan))
    begun, ended = pc.min_max(scanned).values()
    later = pc.sum(pc.not_equal(scanned, begun)).as_py()
    created = pc.cast(pc.struct_field(changes["after"], "created").cast(pa.int64()), pa.float64())
    return _Delivered(
        keys=pc.count_distinct(pc.struct_field(table["after"], "id")).as_py(),
        scanned=len(scanned),
        rate=later / (ended.as_py() - begun.as_py()),
        latencies=pc.subtract(changes["visible"], pc.divide(created, 1e6)),
        usage=usage,
    )
