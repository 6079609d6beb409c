"""Mistakes with messages."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_conformance.reference.encoder import ReferenceEncoder
from cdc_core import Column, EncoderContext, Kind, MessageBatch, Op, OptionError, RowBatch, RowPlace, TableSchema

__all__ = [
    "IgnoresTheDatabase",
    "IgnoresTheOffset",
    "IteratesOverASet",
    "LacksAnEnvelope",
    "ModifiesTheBatch",
    "NeedsAFirstRow",
    "NumbersSchemaObjects",
    "ReturnsTextKeys",
    "ReusesItsBuffer",
    "SortsTransactions",
    "UsesTheFirstTimeForAll",
]


class LacksAnEnvelope(ReferenceEncoder):
    """Refuses an envelope of its registration."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        if context.envelope.row is RowPlace.NOWHERE:
            raise OptionError(f"envelope '{context.envelope.name}' is not supported yet; use 'wrapped'")


class ReturnsTextKeys(ReferenceEncoder):
    """Returns keys as texts."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        batch = super().encode(rows, topic=topic)
        return dataclasses.replace(batch, key=batch.key.cast(pa.large_string()))


class UsesTheFirstTimeForAll(ReferenceEncoder):
    """Returns the time of the first row for all messages of a batch."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        first = rows.column("updated").take(pa.array([0] * len(rows), pa.int64()))
        return dataclasses.replace(super().encode(rows, topic=topic), updated=first)


class SortsTransactions(ReferenceEncoder):
    """Sorts the rows of a transaction by key."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        batch = super().encode(rows, topic=topic)
        if len({(time["wall"], time["logical"]) for time in rows.column("updated").to_pylist()}) == 1:
            order = pa.array(np.argsort(np.array(batch.key.to_pylist(), object), kind="stable"))
            batch = dataclasses.replace(batch, key=batch.key.take(order), value=batch.value.take(order))
        return batch


class NeedsAFirstRow(ReferenceEncoder):
    """Reads the first row of every batch, even when there is none."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        if self.context.output == "messages":
            rows.column("updated")[0]
        return super().encode(rows, topic=topic)


class IgnoresTheOffset(ReferenceEncoder):
    """Reads floats from the start of their buffer, ignoring the offset of a slice."""

    def image(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        image = super().image(rows, index, name)
        for column in rows.schema.columns:
            if image is not None and image[column.name] is not None and column.type.kind is Kind.FLOAT:
                buffer = rows.column(name).field(column.name).buffers()[1]
                values = np.frombuffer(buffer, f"f{(column.type.bits or 64) // 8}")
                image[column.name] = float(values[index]).hex()
        return image


class NumbersSchemaObjects(ReferenceEncoder):
    """Numbers the versions of a table by schema object, although several objects may be one version."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.met: dict[str, list[TableSchema]] = {}

    def value(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> dict[str, Any] | None:
        value = super().value(rows, index, topic, key)
        met = self.met.setdefault(rows.schema.name.full, [])
        if not any(schema is rows.schema for schema in met):
            met.append(rows.schema)
        number = next(number for number, schema in enumerate(met) if schema is rows.schema)
        return None if value is None else {**value, "version": number}


class IteratesOverASet(ReferenceEncoder):
    """Writes columns in the order of a set, which depends on the hash seed of the process."""

    def image(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        image = super().image(rows, index, name)
        return None if image is None else {column: image[column] for column in set(image)}


class IgnoresTheDatabase(ReferenceEncoder):
    """Caches the columns of a table by schema, name and version, which two databases may share."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.columns: dict[tuple[str, int], tuple[Column, ...]] = {}

    def image(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        known = (rows.schema.name.qualified, rows.schema.version)
        columns = self.columns.setdefault(known, rows.schema.columns)
        image = super().image(rows, index, name)
        return None if image is None else {column.name: image.get(column.name) for column in columns}


class ModifiesTheBatch(ReferenceEncoder):
    """Overwrites updates with inserts in the memory of the batch."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        ops = np.frombuffer(rows.column("op").buffers()[1], np.uint8)
        if ops.flags.writeable:
            ops[ops == Op.UPDATE] = Op.INSERT
        return super().encode(rows, topic=topic)


class ReusesItsBuffer(ReferenceEncoder):
    """Writes the values of all batches into the same buffer."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.memory = bytearray()

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        batch = super().encode(rows, topic=topic)
        valid, ends, data = batch.value.buffers()
        content = b"" if data is None else bytes(data)
        if len(self.memory) < len(content):
            self.memory = bytearray(2 * len(content))
        self.memory[: len(content)] = content
        shared = pa.Array.from_buffers(batch.value.type, len(batch), [valid, ends, pa.py_buffer(self.memory)])
        return dataclasses.replace(batch, value=shared)
