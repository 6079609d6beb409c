"""Mistakes with files and resolved marks, with rows that cannot be encoded, and with reading."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cdc_conformance.reference.encoder import ReferenceDecoder, ReferenceEncoder, as_bytes
from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_core import (
    DecodedRow,
    EncodeError,
    EncoderContext,
    FileBody,
    MessageBatch,
    NewlineBody,
    Op,
    RowBatch,
    TableSchema,
    Timestamp,
)


class Body(NewlineBody):
    """A body that can hold bytes back in `pending`."""

    def __init__(self, encoder: ReferenceEncoder, topic: str) -> None:
        super().__init__(lambda rows: encoder.encode(rows, topic=topic).value)
        self.pending = bytearray()


class EndingBody(Body):
    def write(self, rows: RowBatch) -> pa.Buffer:
        written = super().write(rows)
        self.pending[:] = bytes(written)[-1:] or self.pending
        return written

    def finish(self) -> bytes:
        return b"" if self.pending == b"\n" else b"\n"


class LineByLineBody(Body):
    def write(self, rows: RowBatch) -> bytes:
        for number in range(len(rows)):
            self.pending += bytes(super().write(rows.slice(number, 1)))
        return self.finish()

    def finish(self) -> bytes:
        written = bytes(self.pending)
        self.pending.clear()
        return written


class HoldingBody(LineByLineBody):
    def write(self, rows: RowBatch) -> bytes:
        self.pending += bytes(NewlineBody.write(self, rows))
        return b""


class CompressedBody(Body):
    def write(self, rows: RowBatch) -> bytes:
        return gzip.compress(bytes(super().write(rows)), mtime=0)


@mistakes
class Files(ReferenceEncoder):
    """Writes wrong files or marks."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.pending = bytearray()
        self.marks = 0
        self.bad: dict[object, EncodeError] = {}

    @breaks("test_a_resolved_mark_has_the_exact_timestamp", "encode_resolved")
    def drops_the_logical_counter(self, topic: str, timestamp: Timestamp) -> bytes:
        """Writes marks without their logical counter."""
        return super().encode_resolved(topic, Timestamp(timestamp.wall))

    @breaks("test_the_same_resolved_mark_has_the_same_bytes", "encode_resolved")
    def numbers_marks(self, topic: str, timestamp: Timestamp) -> bytes:
        """Numbers the marks that it writes."""
        self.marks += 1
        return as_bytes({**json.loads(super().encode_resolved(topic, timestamp)), "number": self.marks})

    @breaks("test_a_file_holds_the_rows_of_all_writes_in_order", "open_body")
    def drops_rows_after_256(self, topic: str) -> FileBody:
        """Writes only the first 256 rows of a batch."""
        return NewlineBody(lambda rows: self.encode(rows.slice(0, 256), topic=topic).value)

    @breaks("test_a_file_without_rows_can_be_read", "open_body")
    def ends_files_with_a_newline(self, topic: str) -> FileBody:
        """Ends every file with a newline, even a file without rows."""
        return EndingBody(self, topic)

    @breaks("test_open_files_do_not_mix", "open_body")
    def shares_one_buffer(self, topic: str) -> FileBody:
        """Buffers the pending bytes of all files together."""
        body = HoldingBody(self, topic)
        body.pending = self.pending
        return body

    @breaks("test_files_compressed_by_the_encoder_can_be_read", "open_body", compresses=True)
    def hides_its_compression(self, topic: str) -> FileBody:
        """Compresses files, but its decoder does not decompress them."""
        return CompressedBody(self, topic) if self.context.compression == "gzip" else super().open_body(topic)

    @breaks("test_a_failed_write_adds_nothing_to_a_file", "open_body")
    def writes_line_by_line(self, topic: str) -> FileBody:
        """Adds rows to the block one by one, including those before a bad row."""
        return LineByLineBody(self, topic)

    @breaks("test_bad_rows_are_found_by_bisection", "encode")
    def remembers_bad_batches(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Refuses batches that begin with the same key as a batch that failed."""
        first = str(rows.column("key")[:1])
        if first in self.bad:
            raise self.bad[first]
        try:
            return super().encode(rows, topic=topic)
        except EncodeError as error:
            if self.context.output == "messages":
                self.bad[first] = error
            raise


@breaks("test_the_file_extension_begins_with_a_dot")
class OmitsTheDot(ReferenceEncoder):
    """Has a file extension without a dot."""

    file_extension = "lines"


@mistakes
class Reading(ReferenceDecoder):
    """Reads wrongly."""

    @breaks("test_a_resolved_mark_differs_from_every_row", "resolved")
    def finds_marks_in_rows(self, value: bytes | None) -> Timestamp | None:
        """Has a decoder that recognises a mark by a word that rows may contain."""
        found = re.search(rb'"resolved":"([0-9.]+)"', value or b"")
        return None if found is None else Timestamp.parse(found[1].decode())

    @breaks("test_a_truncated_file_is_detected", "file")
    def accepts_truncated_files(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
        """Has a decoder that reads text after the last newline as a line."""
        return super().file(schema, b"".join(line + b"\n" for line in body.splitlines()))

    @breaks("test_reading_by_columns_gives_the_rows_of_the_file", "rows")
    def skips_deleted_rows(self, schema: TableSchema, body: bytes) -> RowBatch:
        """Has a decoder that reads no deleted rows by column."""
        rows = super().rows(schema, body)
        there = pc.not_equal(rows.column("op"), pa.scalar(Op.DELETE, pa.uint8()))
        return RowBatch(schema=schema, batch=rows.batch.filter(there))

    @breaks("test_a_scans_only_format_refuses_deletes_and_marks", "file", scans_only=True, outputs=frozenset({"files"}))
    def accepts_deletes(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
        """Is registered for scans only, and writes a deleted row like any other.

        Reads the key from the row, because such formats have no other place for it.
        """
        return [
            dataclasses.replace(row, key=tuple((row.after or {}).get(name) for name in schema.primary_key))
            for row in super().file(schema, body)
        ]
