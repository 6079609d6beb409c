"""What is measured of batches."""

from __future__ import annotations

import time

import pyarrow as pa

from cdc_core import Column, ColumnType, Kind, Op, RowBatch, TableName, TableSchema
from cdc_core.telemetry.measuring import CommitLatency
from cdc_core.telemetry.metrics import BATCH_ROWS, COMMIT_LATENCY
from cdc_core.telemetry.tally import Tally

ID = Column(name="id", type=ColumnType(kind=Kind.INT, source="bigint", bits=64))
SCHEMA = TableSchema(name=TableName("shop", "public", "orders"), columns=(ID,), primary_key=("id",), version=1)


def rows(*ops: Op, ages_s: tuple[float, ...]) -> RowBatch:
    now = time.time_ns()
    wall = pa.array([now - int(age * 1e9) for age in ages_s], pa.int64())
    ids = pa.array(range(len(ops)), pa.int64())
    return RowBatch.of(
        SCHEMA,
        op=pa.array(ops, pa.uint8()),
        updated=RowBatch.timestamps(wall, pa.array([0] * len(ops), pa.int32())),
        key=RowBatch.struct(SCHEMA.key_type, [ids]),
        after=RowBatch.struct(SCHEMA.after_type, [ids]),
    )


def latencies(tally: Tally) -> dict[float, float]:
    [sample] = tally.samples(COMMIT_LATENCY)
    bounds = (*COMMIT_LATENCY.buckets, float("inf"))
    return {bound: count for bound, count in zip(bounds, sample.counts, strict=True) if count}


def test_each_row_counts_with_the_oldest_commit_of_its_batch_when_it_is_durable() -> None:
    tally = Tally()
    latency = CommitLatency(tally)
    latency.emitted(rows(Op.INSERT, Op.UPDATE, ages_s=(0.0, 20.0)))
    latency.emitted(rows(Op.DELETE, ages_s=(200.0,)))
    assert latencies(tally) == {}
    latency.flushed()
    latency.flushed()
    assert latencies(tally) == {30: 2, 300: 1}
    [batches] = tally.samples(BATCH_ROWS)
    assert (sum(batches.counts), batches.value) == (2, 3)


def test_rows_of_scans_have_no_latency() -> None:
    tally = Tally()
    latency = CommitLatency(tally)
    latency.emitted(rows(Op.SCAN, Op.SCAN, ages_s=(0.0, 0.0)))
    latency.emitted(rows(Op.SCAN, Op.INSERT, ages_s=(900.0, 20.0)))
    latency.flushed()
    assert latencies(tally) == {30: 1}


def test_a_clock_of_the_source_that_is_ahead_counts_as_no_latency() -> None:
    tally = Tally()
    latency = CommitLatency(tally)
    latency.emitted(rows(Op.INSERT, ages_s=(-60.0,)))
    latency.flushed()
    assert latencies(tally) == {COMMIT_LATENCY.buckets[0]: 1}
