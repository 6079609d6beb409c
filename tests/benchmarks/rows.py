"""Ready-made row batches of the benchmarks' table, and how a sink gets them, for parts without a database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core import (
    Column,
    ColumnType,
    Encoder,
    Flushed,
    Kind,
    Op,
    RowBatch,
    Sink,
    SinkContext,
    SliceInfo,
    TableName,
    TableSchema,
)

BATCH_ROWS = 16_384
_BIGINT = ColumnType(kind=Kind.INT, source="bigint", bits=64)
_TEXT = ColumnType(kind=Kind.STRING, source="text")
_TYPES = {
    "id": _BIGINT,
    "customer": _BIGINT,
    "city": _TEXT,
    "status": _TEXT,
    "note": _TEXT,
    "price": ColumnType(kind=Kind.FLOAT, source="double precision", bits=64),
    "amount": ColumnType(kind=Kind.INT, source="integer", bits=32),
    "created": ColumnType(kind=Kind.TIMESTAMPTZ, source="timestamp with time zone"),
}
SCHEMA = TableSchema(
    name=TableName("bench", "public", "orders"),
    version=1,
    columns=tuple(Column(name=name, type=type_) for name, type_ in _TYPES.items()),
    primary_key=("id",),
)
_START_US = 1_760_000_000_000_000


def row_batch(rows: int, *, wall_ns: int = _START_US * 1000, transaction_rows: int = 1000) -> RowBatch:
    """Return updates of *rows* rows in transactions of *transaction_rows*, the first of them committed at *wall_ns*."""
    random = np.random.default_rng(7)
    ids = pa.array(np.arange(1, rows + 1))
    texts = [pa.array(words) for words in (["amsterdam", "boston", "seattle"], ["new", "paid", "sent"])]
    columns = [
        ids,
        pa.array(random.integers(1, 10**6, rows)),
        *(words.take(pa.array(random.integers(0, len(words), rows))) for words in texts),
        pa.array([f"note {number % 9973}" for number in range(rows)]),
        pa.array(np.round(random.random(rows) * 1000, 2)),
        pa.array(random.integers(0, 100, rows).astype(np.int32)),
        pa.array(_START_US + np.cumsum(random.integers(1, 2000, rows))).view(pa.timestamp("us", "UTC")),
    ]
    wall = wall_ns + np.arange(rows) // transaction_rows
    return RowBatch.of(
        SCHEMA,
        op=pa.array(np.full(rows, Op.UPDATE, np.uint8)),
        updated=RowBatch.timestamps(pa.array(wall), pa.array(np.zeros(rows, np.int32))),
        key=RowBatch.struct(SCHEMA.key_type, [ids]),
        after=RowBatch.struct(SCHEMA.after_type, columns),
    )


def batches_of(rows: RowBatch) -> list[RowBatch]:
    """Return *rows* as the engine passes them to a sink."""
    return [rows.slice(start, BATCH_ROWS) for start in range(0, len(rows), BATCH_ROWS)]


def sink_context(uri: str, options: Any, encoder: Encoder, **more: Any) -> SinkContext:
    return SinkContext(
        changefeed="bench", epoch=1, uri=uri, options=options, encoder=encoder, tables=(SCHEMA.name,), **more
    )


def write_slice(sink: Sink, batches: Sequence[RowBatch], *, step: int = 0) -> Flushed:
    sink.begin(SliceInfo(step=step, index=0, lower=batches[0].latest()))
    for batch in batches:
        sink.emit(batch)
    return sink.flush()
