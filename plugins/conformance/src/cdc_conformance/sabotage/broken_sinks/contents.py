"""Mistakes with the values in rows, and with the rows of a slice."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cdc_conformance.reference.partitions import Line
from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_conformance.sabotage.broken_sinks.tampering import WatchedSink, cut, sizes
from cdc_core import DeleteForm, Flushed, Op, RowBatch, SliceInfo, TableSchema

_WIDTH = 65_535
_REQUEST = 500


@mistakes
class Contents(WatchedSink):
    @breaks("test_every_value_arrives_unchanged", "emit")
    def loses_digits(self, rows: RowBatch) -> None:
        """Converts integers to floats and back."""
        column = rows.schema.after_type.get_field_index("an_int8")
        if column >= 0:
            after = rows.column("after")
            arrays = after.flatten()
            floats = arrays[column].cast(pa.float64(), safe=False)
            arrays[column] = pc.if_else(pc.is_null(floats), None, pc.multiply(floats, 0.5).cast(pa.int64(), safe=False))
            rows = _with(rows, after=RowBatch.struct(rows.schema.after_type, arrays, mask=after.is_null()))
        super().emit(rows)

    @breaks("test_nulls_arrive", "emit")
    def skips_nulls(self, rows: RowBatch) -> None:
        """Skips rows with a null column, as if they were deleted."""
        after = rows.column("after").to_pylist()
        super().emit(_kept(rows, [value is None or None not in value.values() for value in after]))

    @breaks("test_unicode_arrives_unchanged", "append")
    def writes_ascii(self, topic: str, partition: int, lines: list[Line]) -> int:
        """Replaces every character that is not ASCII."""
        values = [line.value and line.value.decode().encode("ascii", "replace") for line in lines]
        return super().append(topic, partition, _valued(lines, values))

    @breaks("test_deletes_arrive", "emit")
    def drops_deletes(self, rows: RowBatch) -> None:
        """Writes nothing where a row has no values."""
        tombstones = self.context.encoder.context.envelope.delete is DeleteForm.TOMBSTONE
        super().emit(_kept(rows, [tombstones or op != Op.DELETE for op in rows.column("op").to_pylist()]))

    @breaks("test_large_values_arrive_whole", "append")
    def truncates_values(self, topic: str, partition: int, lines: list[Line]) -> int:
        """Has a column of 64 KB for values."""
        return super().append(topic, partition, _valued(lines, [line.value and line.value[:_WIDTH] for line in lines]))

    @breaks("test_keys_arrive_unchanged", "append")
    def truncates_keys(self, topic: str, partition: int, lines: list[Line]) -> int:
        """Has a column of 255 characters for keys."""
        truncated = [dataclasses.replace(line, key=line.key and line.key[:255]) for line in lines]
        return super().append(topic, partition, truncated)

    @breaks("test_scanned_and_updated_rows_arrive", "emit")
    def drops_scans(self, rows: RowBatch) -> None:
        """Knows inserts, updates and deletes only."""
        super().emit(_kept(rows, [op != Op.SCAN for op in rows.column("op").to_pylist()]))

    @breaks("test_tombstones_arrive", "append")
    def skips_tombstones(self, topic: str, partition: int, lines: list[Line]) -> int:
        """Treats a message without a value as empty."""
        return super().append(topic, partition, [line for line in lines if line.value])

    @breaks("test_flush_counts_bytes", "flush")
    def counts_no_bytes(self) -> Flushed:
        """Counts messages only."""
        return dataclasses.replace(super().flush(), bytes=0)

    @breaks("test_flush_counts_messages", "flush")
    def counts_the_previous_slice(self) -> Flushed:
        """Starts a slice with the count of the previous one."""
        flushed = super().flush()
        of, last = self.known.get("last", (0, 0))
        self.known["last"] = (self.slices, flushed.messages)
        return dataclasses.replace(flushed, messages=flushed.messages + (last if of < self.slices else 0))

    @breaks("test_a_large_slice_arrives_in_order", "write")
    def waits_for_a_full_request(self) -> None:
        """Sends requests of five hundred rows, and forgets the last one, which is never full."""
        whole = len(self.buffer) // _REQUEST * _REQUEST
        self.buffer = self.buffer[: whole or None]
        super().write()

    @breaks("test_rows_of_several_tables_arrive_at_their_topics", "emit")
    def keeps_the_first_topic(self, rows: RowBatch) -> None:
        """Assumes that a slice has one table."""
        first = self.known.setdefault(self.slices, rows.schema.name)
        super().emit(RowBatch(schema=dataclasses.replace(rows.schema, name=first), batch=rows.batch))

    @breaks("test_rows_arrive_at_the_topic_that_they_have", "emit")
    def ignores_topics_of_rows(self, rows: RowBatch) -> None:
        """Knows the topics of tables only."""
        others = [name for name in rows.batch.schema.names if name != "topic"]
        super().emit(dataclasses.replace(rows, batch=rows.batch.select(others)))

    @breaks("test_a_schema_change_within_a_slice_is_followed", "emit")
    def drops_new_columns(self, rows: RowBatch) -> None:
        """Keeps the columns of the first batch of a table."""
        schema: TableSchema = self.known.setdefault(rows.schema.name, rows.schema)
        after = rows.column("after")
        arrays = [after.flatten()[rows.schema.after_type.get_field_index(name)] for name in schema.after_type.names]
        narrowed = RowBatch.struct(schema.after_type, arrays, mask=after.is_null())
        super().emit(_with(rows, schema=schema, after=narrowed))

    @breaks("test_versions_of_a_key_stay_in_order_in_a_slice", "emit")
    def reverses_batches(self, rows: RowBatch) -> None:
        """Takes the rows of a batch from its end."""
        super().emit(_taken(rows, range(len(rows))[::-1]))

    @breaks("test_versions_of_a_key_stay_in_order_across_slices", "append")
    def puts_newest_first(self, topic: str, partition: int, lines: list[Line]) -> int:
        """Inserts the rows of each slice, except the first, before the existing rows."""
        if self.slices > 1:
            there = list(self.partitions.read(topic, partition))
            cut(self.partitions, topic, partition)
            lines = [*lines, *there]
        return super().append(topic, partition, lines)

    @breaks("test_a_key_stays_at_one_endpoint", "partition_of")
    def moves_keys(self, key: bytes | None) -> int:
        """Chooses the partition by key and place in the slice, to spread the load."""
        return (zlib.crc32(key or b"") + len(self.buffer)) % self.options.partitions


@breaks("test_parallel_sinks_do_not_interfere")
class KeepsOffsets(WatchedSink):
    """Keeps from `begin` where each partition ends, and overwrites what others append."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.ends = sizes(self.partitions)

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        if (topic, partition) in self.ends:
            cut(self.partitions, topic, partition, self.ends.pop((topic, partition)))
        return super().append(topic, partition, lines)


def _valued(lines: Sequence[Line], values: Sequence[bytes | None]) -> list[Line]:
    return [dataclasses.replace(line, value=value) for line, value in zip(lines, values, strict=True)]


def _kept(rows: RowBatch, wanted: Sequence[bool]) -> RowBatch:
    return _taken(rows, [number for number, want in enumerate(wanted) if want])


def _taken(rows: RowBatch, numbers: Sequence[int]) -> RowBatch:
    return RowBatch(schema=rows.schema, batch=rows.batch.take(pa.array(numbers, pa.int64())))


def _with(rows: RowBatch, *, after: pa.StructArray, schema: TableSchema | None = None) -> RowBatch:
    columns = {name: rows.column(name) for name in ("op", "updated", "key", "topic") if name in rows.batch.schema.names}
    return RowBatch.of(schema or rows.schema, after=after, **columns)
