"""Scanned rows alone, for encoders that can write no others."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import Encoder, MessageBatch, Op, RowBatch, TableSchema, Timestamp
from cdc_core.encoder import FileBody

__all__ = ["OfScans", "scanned"]


def scanned(batch: RowBatch) -> RowBatch:
    """Return the rows of *batch* that are there, as a scan finds them."""
    kept = batch.batch.filter(pc.not_equal(batch.column("op"), pa.scalar(Op.DELETE, pa.uint8())))
    place = kept.schema.get_field_index("op")
    ops = pa.array([Op.SCAN] * kept.num_rows, pa.uint8())
    return RowBatch(schema=batch.schema, batch=kept.set_column(place, "op", ops))


class OfScans(Encoder):
    """Gives another encoder scanned rows alone."""

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
