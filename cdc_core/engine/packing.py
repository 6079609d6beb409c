"""The packed layout: how slices travel through Spark as rows that the JVM never opens.

A slice is a sequence of Spark rows: one `begin`, any number of `rows`, one `end` (or `failed`, when reading failed).
Where there is no slice at all, one row says `idle`: without it, a reader that died would look the same. Each is an
Arrow record batch of a single row, because the JVM merges and splits record batches by their number of rows; with
`maxRecordsPerBatch=1` it passes each on unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from cdc_core.rows import RowBatch

__all__ = ["BEGIN", "END", "FAILED", "IDLE", "ROWS", "SPARK_SCHEMA", "TARGET_BYTES", "note", "pack", "unpack"]

BEGIN, ROWS, END, FAILED, IDLE = "begin", "rows", "end", "failed", "idle"
SPARK_SCHEMA = "kind STRING, table STRING, version INT, payload BINARY"
TARGET_BYTES = 4 * 1024 * 1024
"""Row batches of more than twice this are cut, so that no Spark row is larger than what the JVM's heap is sized for."""

_ARROW_SCHEMA = pa.schema(
    [("kind", pa.string()), ("table", pa.string()), ("version", pa.int32()), ("payload", pa.binary())]
)


def note(kind: str, value: dict[str, Any]) -> pa.RecordBatch:
    """Return a `begin` or `end` row that carries the JSON *value*."""
    return _row(kind, None, None, json.dumps(value, separators=(",", ":")).encode())


def pack(rows: RowBatch) -> Iterator[pa.RecordBatch]:
    """Yield *rows* as one or more `rows` rows, none when there are none."""
    if len(rows) > 1 and rows.nbytes > 2 * TARGET_BYTES:
        middle = len(rows) // 2  # by halves, as values may be of very different sizes
        yield from pack(rows.slice(0, middle))
        yield from pack(rows.slice(middle))
    elif len(rows):
        yield _row(ROWS, str(rows.schema.name), rows.schema.version, rows.to_ipc())


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, RowBatch | dict[str, Any]]]:
    """Yield (kind, value) of every row: a RowBatch for `rows`, the JSON value for all others."""
    for batch in batches:
        payloads = batch.column("payload")
        for index, kind in enumerate(batch.column("kind").to_pylist()):
            payload = payloads[index].as_buffer()
            yield kind, RowBatch.from_ipc(payload) if kind == ROWS else json.loads(payload.to_pybytes())


def _row(kind: str, table: str | None, version: int | None, payload: bytes | pa.Buffer) -> pa.RecordBatch:
    size = len(payload) if isinstance(payload, bytes) else payload.size
    offsets = pa.array([0, size], pa.int32()).buffers()[1]
    data = pa.py_buffer(payload) if isinstance(payload, bytes) else payload
    return pa.record_batch(
        [
            pa.array([kind], pa.string()),
            pa.array([table], pa.string()),
            pa.array([version], pa.int32()),
            pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data]),
        ],
        schema=_ARROW_SCHEMA,
    )
