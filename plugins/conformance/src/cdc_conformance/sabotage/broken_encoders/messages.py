"""Mistakes with messages, files and resolved marks, with rows that cannot be encoded, and with reading."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_conformance.reference.encoder import ReferenceDecoder, ReferenceEncoder, as_bytes
from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_core import (
    Column,
    DecodedRow,
    EncodeError,
    EncoderContext,
    FileBody,
    Kind,
    MessageBatch,
    NewlineBody,
    Op,
    OptionError,
    RowBatch,
    RowPlace,
    TableSchema,
    Timestamp,
)


@mistakes
class Messages(ReferenceEncoder):
    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.schemas: dict[str, list[TableSchema]] = {}
        self.columns: dict[tuple[str, int], tuple[Column, ...]] = {}
        self.memory = bytearray()

    @breaks("test_every_registered_envelope_can_be_written", "__init__")
    def lacks_an_envelope(self, context: EncoderContext) -> None:
        """Refuses an envelope of its registration."""
        super().__init__(context)
        if context.envelope.row is RowPlace.NOWHERE:
            raise OptionError(f"envelope '{context.envelope.name}' is not supported yet; use 'wrapped'")

    @breaks("test_there_is_one_message_for_each_row", "encode")
    def returns_text_keys(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Returns keys as texts."""
        batch = super().encode(rows, topic=topic)
        return dataclasses.replace(batch, key=batch.key.cast(pa.large_string()))

    @breaks("test_messages_have_the_times_and_topic_of_their_rows", "encode")
    def uses_the_first_time_for_all(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Returns the time of the first row for all messages of a batch."""
        first = rows.column("updated").take(pa.array([0] * len(rows), pa.int64()))
        return dataclasses.replace(super().encode(rows, topic=topic), updated=first)

    @breaks("test_messages_have_the_order_of_their_rows", "encode")
    def sorts_transactions(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Sorts the rows of a transaction by key."""
        batch = super().encode(rows, topic=topic)
        if len({(time["wall"], time["logical"]) for time in rows.column("updated").to_pylist()}) == 1:
            order = pa.array(np.argsort(np.array(batch.key.to_pylist(), object), kind="stable"))
            batch = dataclasses.replace(batch, key=batch.key.take(order), value=batch.value.take(order))
        return batch

    @breaks("test_an_empty_batch_gives_no_messages", "encode")
    def needs_a_first_row(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Reads the first row of every batch, even when there is none."""
        if self.context.output == "messages":
            rows.column("updated")[0]
        return super().encode(rows, topic=topic)

    @breaks("test_slices_of_a_batch_give_the_same_messages", "image")
    def ignores_the_offset(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        """Reads floats from the start of their buffer, ignoring the offset of a slice."""
        image = super().image(rows, index, name)
        for column in rows.schema.columns:
            if image is not None and image[column.name] is not None and column.type.kind is Kind.FLOAT:
                buffer = rows.column(name).field(column.name).buffers()[1]
                values = np.frombuffer(buffer, f"f{(column.type.bits or 64) // 8}")
                image[column.name] = float(values[index]).hex()
        return image

    @breaks("test_the_same_rows_give_the_same_bytes", "value")
    def numbers_schema_objects(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> dict[str, Any] | None:
        """Numbers the versions of a table by schema object, although several objects may be one version."""
        value = super().value(rows, index, topic, key)
        met = self.schemas.setdefault(rows.schema.name.full, [])
        if not any(schema is rows.schema for schema in met):
            met.append(rows.schema)
        number = next(number for number, schema in enumerate(met) if schema is rows.schema)
        return None if value is None else {**value, "version": number}

    @breaks("test_other_processes_write_the_same_bytes", "image")
    def iterates_over_a_set(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        """Writes columns in the order of a set, which depends on the hash seed of the process."""
        image = super().image(rows, index, name)
        return image and {column: image[column] for column in set(image)}

    @breaks("test_messages_do_not_depend_on_earlier_batches", "image")
    def ignores_the_database(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        """Caches the columns of a table by schema, name and version, which two databases may share."""
        known = (rows.schema.name.qualified, rows.schema.version)
        columns = self.columns.setdefault(known, rows.schema.columns)
        image = super().image(rows, index, name)
        return None if image is None else {column.name: image.get(column.name) for column in columns}

    @breaks("test_rows_are_not_modified", "encode")
    def modifies_the_batch(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Overwrites updates with inserts in the memory of the batch."""
        ops = np.frombuffer(rows.column("op").buffers()[1], np.uint8)
        if ops.flags.writeable:
            ops[ops == Op.UPDATE] = Op.INSERT
        return super().encode(rows, topic=topic)

    @breaks("test_messages_are_not_modified_later", "encode")
    def reuses_its_buffer(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Writes the values of all batches into the same buffer."""
        batch = super().encode(rows, topic=topic)
        valid, ends, data = batch.value.buffers()
        content = b"" if data is None else bytes(data)
        if len(self.memory) < len(content):
            self.memory = bytearray(2 * len(content))
        self.memory[: len(content)] = content
        shared = pa.Array.from_buffers(batch.value.type, len(batch), [valid, ends, pa.py_buffer(self.memory)])
        return dataclasses.replace(batch, value=shared)


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
    @breaks("test_a_resolved_mark_differs_from_every_row", "resolved")
    def finds_marks_in_rows(self, value: bytes | None) -> Timestamp | None:
        """Has a decoder that recognizes a mark by a word that rows may contain."""
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
