"""Mistakes with rows that cannot be encoded, and with reading files."""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cdc_conformance.reference.encoder import ReferenceDecoder, ReferenceEncoder
from cdc_conformance.sabotage.broken_encoders.bodies import WithOwnBody
from cdc_core import (
    DecodedRow,
    EncodeError,
    Encoder,
    EncoderContext,
    FileBody,
    MessageBatch,
    NewlineBody,
    Op,
    RowBatch,
    TableSchema,
)

__all__ = [
    "AcceptsDeletes",
    "HidesItsCompression",
    "RemembersBadBatches",
    "SkipsDeletedRows",
    "WritesLineByLine",
]


class RemembersBadBatches(ReferenceEncoder):
    """Refuses batches that begin with the same key as a batch that failed."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.bad: dict[object, EncodeError] = {}

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        first = str(rows.column("key")[:1]) if self.context.output == "messages" and len(rows) else None
        if first in self.bad:
            raise self.bad[first]
        try:
            return super().encode(rows, topic=topic)
        except EncodeError as error:
            if first is not None:
                self.bad[first] = error
            raise


class WritesLineByLine(WithOwnBody):
    """Adds rows to the block one by one, including those before a bad row."""

    class Body(NewlineBody):
        pending = b""

        def write(self, rows: RowBatch) -> bytes:
            for number in range(len(rows)):
                self.pending += bytes(super().write(rows.slice(number, 1)))
            written, self.pending = self.pending, b""
            return written

        def finish(self) -> bytes:
            return self.pending


class SkipsDeletedRows(ReferenceEncoder):
    """Has a decoder that reads no deleted rows by column."""

    class Reader(ReferenceDecoder):
        def rows(self, schema: TableSchema, body: bytes) -> RowBatch:
            rows = super().rows(schema, body)
            there = pc.not_equal(rows.column("op"), pa.scalar(Op.DELETE, pa.uint8()))
            return RowBatch(schema=schema, batch=rows.batch.filter(there))


SkipsDeletedRowsReader = SkipsDeletedRows.Reader


class HidesItsCompression(WithOwnBody):
    """Compresses files, but its decoder does not decompress them."""

    class Body(NewlineBody):
        def write(self, rows: RowBatch) -> bytes:
            return gzip.compress(bytes(super().write(rows)), mtime=0)

    def open_body(self, topic: str) -> FileBody:
        return super().open_body(topic) if self.context.compression == "gzip" else Encoder.open_body(self, topic)


class AcceptsDeletes(ReferenceEncoder):
    """Is registered for scans only, and writes a deleted row like any other."""

    class Reader(ReferenceDecoder):
        """Reads the key from the row, because such formats have no other place for it."""

        def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
            return [
                dataclasses.replace(row, key=tuple((row.after or {}).get(name) for name in schema.primary_key))
                for row in super().file(schema, body)
            ]


AcceptsDeletesReader = AcceptsDeletes.Reader
