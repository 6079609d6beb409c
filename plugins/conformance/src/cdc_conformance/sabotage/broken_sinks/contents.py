"""Mistakes with the values in rows, and with the rows of a slice."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cdc_conformance.reference.partitions import Line
from cdc_conformance.reference.sink import ReferenceSink
from cdc_conformance.sabotage.broken_sinks.tampering import cut, sizes
from cdc_core import DeleteForm, Flushed, Op, RowBatch, SliceInfo, TableName, TableSchema

__all__ = [
    "CountsNoBytes",
    "CountsThePreviousSlice",
    "DropsDeletes",
    "DropsNewColumns",
    "DropsScans",
    "IgnoresTopicsOfRows",
    "KeepsOffsets",
    "KeepsTheFirstTopic",
    "LosesDigits",
    "MovesKeys",
    "PutsNewestFirst",
    "ReversesBatches",
    "SkipsNulls",
    "SkipsTombstones",
    "TruncatesKeys",
    "TruncatesValues",
    "WaitsForAFullRequest",
    "WritesAscii",
]

_WIDTH = 65_535
_REQUEST = 500


class LosesDigits(ReferenceSink):
    """Converts integers to floats and back."""

    def emit(self, rows: RowBatch) -> None:
        if "an_int8" not in rows.schema.after_type.names:
            super().emit(rows)
            return
        column = rows.schema.after_type.get_field_index("an_int8")
        after = rows.column("after")
        arrays = after.flatten()
        floats = arrays[column].cast(pa.float64(), safe=False)
        arrays[column] = pc.if_else(pc.is_null(floats), None, pc.multiply(floats, 0.5).cast(pa.int64(), safe=False))
        changed = RowBatch.struct(rows.schema.after_type, arrays, mask=after.is_null())
        super().emit(_with(rows, after=changed))


class SkipsNulls(ReferenceSink):
    """Skips rows with a null column, as if they were deleted."""

    def emit(self, rows: RowBatch) -> None:
        after = rows.column("after").to_pylist()
        super().emit(_kept(rows, [value is None or None not in value.values() for value in after]))


class WritesAscii(ReferenceSink):
    """Replaces every character that is not ASCII."""

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        ascii_only = [
            dataclasses.replace(line, value=line.value and line.value.decode().encode("ascii", "replace"))
            for line in lines
        ]
        return super().append(topic, partition, ascii_only)


class DropsDeletes(ReferenceSink):
    """Writes nothing where a row has no values."""

    def emit(self, rows: RowBatch) -> None:
        tombstones = self.context.encoder.context.envelope.delete is DeleteForm.TOMBSTONE
        super().emit(_kept(rows, [tombstones or op != Op.DELETE for op in rows.column("op").to_pylist()]))


class TruncatesValues(ReferenceSink):
    """Has a column of 64 KB for values."""

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        truncated = [dataclasses.replace(line, value=line.value and line.value[:_WIDTH]) for line in lines]
        return super().append(topic, partition, truncated)


class TruncatesKeys(ReferenceSink):
    """Has a column of 255 characters for keys."""

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        truncated = [dataclasses.replace(line, key=line.key and line.key[:255]) for line in lines]
        return super().append(topic, partition, truncated)


class DropsScans(ReferenceSink):
    """Knows inserts, updates and deletes only."""

    def emit(self, rows: RowBatch) -> None:
        super().emit(_kept(rows, [op != Op.SCAN for op in rows.column("op").to_pylist()]))


class SkipsTombstones(ReferenceSink):
    """Treats a message without a value as empty."""

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        return super().append(topic, partition, [line for line in lines if line.value])


class CountsNoBytes(ReferenceSink):
    """Counts messages only."""

    def flush(self) -> Flushed:
        return dataclasses.replace(super().flush(), bytes=0)


class CountsThePreviousSlice(ReferenceSink):
    """Starts a slice with the count of the previous one."""

    last = previous = 0

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.previous = self.last

    def flush(self) -> Flushed:
        flushed = super().flush()
        self.last, previous, self.previous = flushed.messages, self.previous, 0
        return dataclasses.replace(flushed, messages=flushed.messages + previous)


class WaitsForAFullRequest(ReferenceSink):
    """Sends requests of five hundred rows, and forgets the last one, which is never full."""

    def write(self) -> None:
        whole = len(self.buffer) // _REQUEST * _REQUEST
        if whole:
            self.buffer = self.buffer[:whole]
        super().write()


class KeepsTheFirstTopic(ReferenceSink):
    """Assumes that a slice has one table."""

    first: TableName | None = None

    def begin(self, slice_: SliceInfo) -> None:
        self.first = None
        super().begin(slice_)

    def emit(self, rows: RowBatch) -> None:
        self.first = self.first or rows.schema.name
        super().emit(RowBatch(schema=dataclasses.replace(rows.schema, name=self.first), batch=rows.batch))


class IgnoresTopicsOfRows(ReferenceSink):
    """Knows the topics of tables only."""

    def emit(self, rows: RowBatch) -> None:
        others = [name for name in rows.batch.schema.names if name != "topic"]
        super().emit(dataclasses.replace(rows, batch=rows.batch.select(others)))


class DropsNewColumns(ReferenceSink):
    """Keeps the columns of the first batch of a table."""

    def emit(self, rows: RowBatch) -> None:
        known: dict[TableName, TableSchema] = self.__dict__.setdefault("known", {})
        schema = known.setdefault(rows.schema.name, rows.schema)
        after = rows.column("after")
        names = schema.after_type.names
        arrays = [after.flatten()[rows.schema.after_type.get_field_index(name)] for name in names]
        narrowed = RowBatch.struct(schema.after_type, arrays, mask=after.is_null())
        super().emit(_with(rows, schema=schema, after=narrowed))


class KeepsOffsets(ReferenceSink):
    """Keeps from `begin` where each partition ends, and overwrites what others append."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.ends = sizes(self.partitions)

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        if (topic, partition) in self.ends:
            cut(self.partitions, topic, partition, self.ends.pop((topic, partition)))
        return super().append(topic, partition, lines)


class ReversesBatches(ReferenceSink):
    """Takes the rows of a batch from its end."""

    def emit(self, rows: RowBatch) -> None:
        super().emit(_taken(rows, list(reversed(range(len(rows))))))


class PutsNewestFirst(ReferenceSink):
    """Inserts the rows of each slice, except the first, before the existing rows."""

    slices = 0

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.slices += 1

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        if self.slices <= 1:
            return super().append(topic, partition, lines)
        there = list(self.partitions.read(topic, partition))
        cut(self.partitions, topic, partition)
        return super().append(topic, partition, [*lines, *there])


class MovesKeys(ReferenceSink):
    """Chooses the partition by key and step, to spread the load."""

    step = 0

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.step = slice_.step

    def partition_of(self, key: bytes | None) -> int:
        return (zlib.crc32(key or b"") + self.step) % self.options.partitions


def _kept(rows: RowBatch, wanted: Sequence[bool]) -> RowBatch:
    return _taken(rows, [number for number, want in enumerate(wanted) if want])


def _taken(rows: RowBatch, numbers: Sequence[int]) -> RowBatch:
    return RowBatch(schema=rows.schema, batch=rows.batch.take(pa.array(numbers, pa.int64())))


def _with(rows: RowBatch, *, after: pa.StructArray, schema: TableSchema | None = None) -> RowBatch:
    columns = {name: rows.column(name) for name in ("op", "updated", "key", "topic") if name in rows.batch.schema.names}
    return RowBatch.of(schema or rows.schema, after=after, **columns)
