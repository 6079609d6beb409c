"""Mistakes with rows that cannot be written, with reading whole files, and with what a file is."""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cdc_conformance.reference.encoder import ReferenceDecoder, ReferenceEncoder
from cdc_core import DecodedRow, EncodeError, EncoderContext, FileBody, MessageBatch, Op, RowBatch, TableSchema
from cdc_core.encoder import NewlineBody

__all__ = [
    "CompressesOutOfSight",
    "ReadsWhatIsThere",
    "RemembersBadBatches",
    "TakesScansForRows",
    "WritesLineByLine",
]


class RemembersBadBatches(ReferenceEncoder):
    """Saves itself the trouble of batches that begin like one that failed."""

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


class WritesLineByLine(ReferenceEncoder):
    """Puts rows into the block one by one, those before a bad one too."""

    class Body(NewlineBody):
        pending = b""

        def write(self, rows: RowBatch) -> bytes:
            for number in range(len(rows)):
                self.pending += bytes(super().write(rows.slice(number, 1)))
            written, self.pending = self.pending, b""
            return written

        def finish(self) -> bytes:
            return self.pending

    def open_body(self, topic: str) -> FileBody:
        return self.Body(self, topic)


class ReadsWhatIsThere(ReferenceEncoder):
    """Comes with a decoder that has no place for deleted rows among its columns."""

    class Reader(ReferenceDecoder):
        def rows(self, schema: TableSchema, body: bytes) -> RowBatch:
            rows = super().rows(schema, body)
            there = pc.not_equal(rows.column("op"), pa.scalar(Op.DELETE, pa.uint8()))
            return RowBatch(schema=schema, batch=rows.batch.filter(there))


ReadsWhatIsThereReader = ReadsWhatIsThere.Reader


class CompressesOutOfSight(ReferenceEncoder):
    """Compresses files as it is told, and has a decoder that has to be told too."""

    compresses = True

    class Body(NewlineBody):
        def write(self, rows: RowBatch) -> bytes:
            return gzip.compress(bytes(super().write(rows)), mtime=0)

    def open_body(self, topic: str) -> FileBody:
        return self.Body(self, topic) if self.context.compression == "gzip" else super().open_body(topic)


class TakesScansForRows(ReferenceEncoder):
    """Is registered as a format of scans, and writes a deleted row like any other."""

    class Reader(ReferenceDecoder):
        """Finds the key in the row, as such formats have no other place for it."""

        def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
            return [
                dataclasses.replace(row, key=tuple((row.after or {}).get(name) for name in schema.primary_key))
                for row in super().file(schema, body)
            ]


TakesScansForRowsReader = TakesScansForRows.Reader
