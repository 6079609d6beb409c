"""Mistakes with messages."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_conformance.reference.encoder import ReferenceEncoder
from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_core import Column, EncoderContext, Kind, MessageBatch, Op, OptionError, RowBatch, RowPlace, TableSchema


@mistakes
class Messages(ReferenceEncoder):
    """Returns wrong messages."""

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
