"""Mistakes with the contents of rows, and with which rows are in a slice."""

from __future__ import annotations

import dataclasses
import zlib

import pyarrow as pa
import pyarrow.compute as pc

from cdc_conformance.reference.partitions import Line
from cdc_conformance.reference.sink import ReferenceSink
from cdc_core import Flushed, Op, RowBatch, SliceInfo, TableName, TableSchema

__all__ = [
    "CountsNoBytes",
    "CutsKeys",
    "CutsValues",
    "DropsDeletes",
    "DropsNewColumns",
    "DropsScans",
    "ForgetsNothing",
    "KeepsItsPlace",
    "KeepsTheFirstTopic",
    "LosesDigits",
    "MovesKeys",
    "NeverStartsCounting",
    "PutsNewestFirst",
    "ReversesBatches",
    "SkipsNulls",
    "SkipsTombstones",
    "SpeaksAscii",
    "WaitsForAFullRequest",
]

_CUT = 65_535
_REQUEST = 500


class LosesDigits(ReferenceSink):
    """Passes integers through floats."""

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
    """Leaves rows out in which a column is null, taking them for deleted ones."""

    def emit(self, rows: RowBatch) -> None:
        after = rows.column("after")
        full = [value is None or None not in value.values() for value in after.to_pylist()]
        super().emit(_taken(rows, full))


class SpeaksAscii(ReferenceSink):
    """Writes text in the encoding of a country."""

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        ascii_only = [
            dataclasses.replace(line, value=line.value and line.value.decode().encode("ascii", "replace"))
            for line in lines
        ]
        return super().append(topic, partition, ascii_only)


class DropsDeletes(ReferenceSink):
    """Has nothing to write where a row has no values."""

    def emit(self, rows: RowBatch) -> None:
        tombstones = self.context.encoder.context.envelope.envelope in ("row", "key_only")
        super().emit(_taken(rows, [tombstones or op != Op.DELETE for op in rows.column("op").to_pylist()]))


class CutsValues(ReferenceSink):
    """Has a column of 64 KB for values."""

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        cut = [dataclasses.replace(line, value=line.value and line.value[:_CUT]) for line in lines]
        return super().append(topic, partition, cut)


class CutsKeys(ReferenceSink):
    """Has a column of 255 characters for keys."""

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        cut = [dataclasses.replace(line, key=None if line.key is None else line.key[:255]) for line in lines]
        return super().append(topic, partition, cut)


class DropsScans(ReferenceSink):
    """Knows inserts, updates and deletes, and no other operation."""

    def emit(self, rows: RowBatch) -> None:
        super().emit(_taken(rows, [op != Op.SCAN for op in rows.column("op").to_pylist()]))


class SkipsTombstones(ReferenceSink):
    """Takes a message without a value for one that says nothing."""

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        return super().append(topic, partition, [line for line in lines if line.value])


class CountsNoBytes(ReferenceSink):
    """Counts messages alone."""

    def flush(self) -> Flushed:
        return dataclasses.replace(super().flush(), bytes=0)


class NeverStartsCounting(ReferenceSink):
    """Begins a slice with the count of the one before."""

    last = before = 0

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.before = self.last

    def flush(self) -> Flushed:
        flushed = super().flush()
        self.last, before, self.before = flushed.messages, self.before, 0
        return dataclasses.replace(flushed, messages=flushed.messages + before)


class WaitsForAFullRequest(ReferenceSink):
    """Sends requests of five hundred rows, and forgets the last one, which is never full."""

    def write(self) -> None:
        whole = len(self.buffer) // _REQUEST * _REQUEST
        if whole:
            self.buffer = self.buffer[:whole]
        super().write()


class KeepsTheFirstTopic(ReferenceSink):
    """Takes a slice for one of a single table."""

    first: TableName | None = None

    def begin(self, slice_: SliceInfo) -> None:
        self.first = None
        super().begin(slice_)

    def emit(self, rows: RowBatch) -> None:
        self.first = self.first or rows.schema.name
        super().emit(RowBatch(schema=dataclasses.replace(rows.schema, name=self.first), batch=rows.batch))


class DropsNewColumns(ReferenceSink):
    """Keeps the columns that it saw first of a table."""

    def emit(self, rows: RowBatch) -> None:
        known: dict[TableName, TableSchema] = self.__dict__.setdefault("known", {})
        schema = known.setdefault(rows.schema.name, rows.schema)
        after = rows.column("after")
        names = schema.after_type.names
        arrays = [after.flatten()[rows.schema.after_type.get_field_index(name)] for name in names]
        narrowed = RowBatch.struct(schema.after_type, arrays, mask=after.is_null())
        super().emit(_with(rows, schema=schema, after=narrowed))


class KeepsItsPlace(ReferenceSink):
    """Remembers from `begin` where each partition ends, and goes on from there."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.ends = {
            (topic, partition): self.partitions.size(topic, partition)
            for topic in self.topics
            for partition in range(self.options.partitions)
        }

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        if (topic, partition) in self.ends:
            self.partitions.cut(topic, partition, self.ends.pop((topic, partition)))
        return super().append(topic, partition, lines)


class ForgetsNothing(ReferenceSink):
    """Carries what was not flushed over to the next slice."""

    def begin(self, slice_: SliceInfo) -> None:
        kept = self.buffer
        super().begin(slice_)
        self.buffer = kept


class ReversesBatches(ReferenceSink):
    """Takes the rows of a batch from its end."""

    def emit(self, rows: RowBatch) -> None:
        super().emit(_taken(rows, list(reversed(range(len(rows))))))


class PutsNewestFirst(ReferenceSink):
    """Puts each slice but its first before what is there."""

    slices = 0

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.slices += 1

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        if self.slices <= 1:
            return super().append(topic, partition, lines)
        there = list(self.partitions.read(topic, partition))
        self.partitions.cut(topic, partition, 0)
        return super().append(topic, partition, [*lines, *there])


class MovesKeys(ReferenceSink):
    """Spreads rows over partitions by step, so that all have the same load."""

    def partition_of(self, key: bytes | None) -> int:
        step = self._slice.step if self._slice else 0
        return (zlib.crc32(key or b"") + step) % self.options.partitions


def _taken(rows: RowBatch, which: list[bool] | list[int]) -> RowBatch:
    if which and isinstance(which[0], bool):
        which = [number for number, wanted in enumerate(which) if wanted]
    return RowBatch(schema=rows.schema, batch=rows.batch.take(pa.array(which, pa.int64())))


def _with(rows: RowBatch, *, after: pa.StructArray, schema: TableSchema | None = None) -> RowBatch:
    names = ("op", "updated", "key")
    columns = {name: rows.column(name) for name in names}
    return RowBatch.of(schema or rows.schema, after=after, **columns)
