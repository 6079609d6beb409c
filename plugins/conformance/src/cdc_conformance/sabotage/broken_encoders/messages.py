"""Mistakes with messages as such."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_conformance.reference.encoder import ReferenceEncoder
from cdc_core import Column, EncoderContext, Kind, MessageBatch, Op, OptionError, RowBatch, TableSchema

__all__ = [
    "CountsSchemaObjects",
    "ForgetsTheDatabase",
    "ForgetsTheOffset",
    "GivesTextsAsKeys",
    "HasOneTimeForAll",
    "LacksAnEnvelope",
    "NeedsAFirstRow",
    "PutsColumnsInAnyOrder",
    "SortsTransactions",
    "UsesItsBufferAgain",
    "WritesIntoTheBatch",
]


class LacksAnEnvelope(ReferenceEncoder):
    """Was registered with an envelope that is still to be written."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        if context.envelope.envelope == "key_only":
            raise OptionError("envelope 'key_only' is not supported yet; use 'wrapped'")


class GivesTextsAsKeys(ReferenceEncoder):
    """Gives keys as texts, for a client that makes bytes of them by itself."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        batch = super().encode(rows, topic=topic)
        return dataclasses.replace(batch, key=batch.key.cast(pa.large_string()))


class HasOneTimeForAll(ReferenceEncoder):
    """Gives all messages of a batch the time of its first row."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        first = rows.column("updated").take(pa.array([0] * len(rows), pa.int64()))
        return dataclasses.replace(super().encode(rows, topic=topic), updated=first)


class SortsTransactions(ReferenceEncoder):
    """Sorts the rows of one transaction by key, thinking that their order means nothing."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        batch = super().encode(rows, topic=topic)
        if len({(time["wall"], time["logical"]) for time in rows.column("updated").to_pylist()}) == 1:
            order = pa.array(np.argsort(np.array(batch.key.to_pylist(), object), kind="stable"))
            batch = dataclasses.replace(batch, key=batch.key.take(order), value=batch.value.take(order))
        return batch


class NeedsAFirstRow(ReferenceEncoder):
    """Looks at the first row of a batch for what all its messages share."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        if self.context.output == "messages":
            rows.column("updated")[0]
        return super().encode(rows, topic=topic)


class ForgetsTheOffset(ReferenceEncoder):
    """Reads floats from the buffer of their array, from its beginning, where a slice does not begin."""

    def image(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        image = super().image(rows, index, name)
        for column in rows.schema.columns:
            if image is not None and image[column.name] is not None and column.type.kind is Kind.FLOAT:
                buffer = rows.column(name).field(column.name).buffers()[1]
                values = np.frombuffer(buffer, f"f{(column.type.bits or 64) // 8}")
                image[column.name] = float(values[index]).hex()
        return image


class CountsSchemaObjects(ReferenceEncoder):
    """Numbers the versions of a table by the schema objects that it meets, several of which are one version."""

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


class PutsColumnsInAnyOrder(ReferenceEncoder):
    """Goes over the columns in the order of a set, which hashes decide, and each process has its own."""

    def image(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        image = super().image(rows, index, name)
        return None if image is None else {column: image[column] for column in set(image)}


class ForgetsTheDatabase(ReferenceEncoder):
    """Remembers the columns of a table by its schema, name and version, which two databases may share."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.columns: dict[tuple[str, int], tuple[Column, ...]] = {}

    def image(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        known = (rows.schema.name.qualified, rows.schema.version)
        columns = self.columns.setdefault(known, rows.schema.columns)
        image = super().image(rows, index, name)
        return None if image is None else {column.name: image.get(column.name) for column in columns}


class WritesIntoTheBatch(ReferenceEncoder):
    """Makes inserts of updates, which it does not tell apart, in the memory of the batch."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        ops = np.frombuffer(rows.column("op").buffers()[1], np.uint8)
        if ops.flags.writeable:
            ops[ops == Op.UPDATE] = Op.INSERT
        return super().encode(rows, topic=topic)


class UsesItsBufferAgain(ReferenceEncoder):
    """Writes the values of every batch into the same memory, to be fast."""

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
