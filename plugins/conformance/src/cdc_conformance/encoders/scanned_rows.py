"""Restricts an encoder to scanned rows, for formats that are for scans only."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import Encoder, FileBody, MessageBatch, Op, RowBatch, TableSchema, Timestamp

__all__ = ["ScannedRowsEncoder", "scanned"]


def scanned(batch: RowBatch) -> RowBatch:
    """Return the rows of *batch* that are not deleted, as scanned rows."""
    kept = batch.batch.filter(pc.not_equal(batch.column("op"), pa.scalar(Op.DELETE, pa.uint8())))
    place = kept.schema.get_field_index("op")
    ops = pa.array([Op.SCAN] * kept.num_rows, pa.uint8())
    return RowBatch(schema=batch.schema, batch=kept.set_column(place, "op", ops))


class ScannedRowsEncoder(Encoder):
    """Passes only scanned rows to another encoder."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder.context)
        self._encoder = encoder
        self.file_extension = encoder.file_extension

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        self._encoder.check(tables)

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        return self._encoder.encode(scanned(rows), topic=topic)

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        return self._encoder.encode_resolved(topic, timestamp)

    def open_body(self, topic: str) -> FileBody:
        return _Body(self._encoder.open_body(topic))


class _Body(FileBody):
    def __init__(self, body: FileBody) -> None:
        self._body = body

    def write(self, rows: RowBatch) -> bytes | pa.Buffer:
        return self._body.write(scanned(rows))

    def finish(self) -> bytes | pa.Buffer:
        return self._body.finish()
