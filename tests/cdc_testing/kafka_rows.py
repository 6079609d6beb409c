"""Rows for tests of the Kafka sink, and an encoder that makes small messages of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from cdc_testing.kafka_reading import Message

from cdc_core import Column, ColumnType, Encoder, Kind, MessageBatch, Op, RowBatch, TableName, TableSchema, Timestamp

TEXT = ColumnType(kind=Kind.STRING, source="text")
JSON = ColumnType(kind=Kind.JSON, source="jsonb")


class SmallEncoder(Encoder):
    """Encodes keys as `[id]`, rows with their wall time as JSON, and deletes as tombstones."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        keys = rows.column("key").field("id").to_pylist()
        walls = rows.column("updated").field("wall").to_pylist()
        values = [
            None if after is None else json.dumps({**after, "wall": wall}).encode()
            for after, wall in zip(rows.column("after").to_pylist(), walls, strict=True)
        ]
        return MessageBatch(
            topic=topic,
            key=pa.array([f"[{key}]".encode() for key in keys], pa.large_binary()),
            value=pa.array(values, pa.large_binary()),
            updated=rows.column("updated"),
        )

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        return f'{{"resolved":"{timestamp}"}}'.encode()


def table_name(table: str = "orders", schema: str = "public") -> TableName:
    """Return the name of *table* in the database `shop`."""
    return TableName("shop", schema, table)


def rows(
    ids: Sequence[int],
    *,
    table: str = "orders",
    walls: Sequence[int] | None = None,
    texts: Sequence[str | None] | None = None,
    deleted: Sequence[int] = (),
    extra: Mapping[str, tuple[ColumnType, Sequence[Any]]] | None = None,
    before: bool = False,
) -> RowBatch:
    """Return updates of the rows *ids* at *walls*, each with a text and *extra* columns; *deleted* have no `after`."""
    columns = {"id": (ColumnType(kind=Kind.INT, source="bigint", bits=64), list(ids))}
    columns["text"] = (TEXT, list(texts or ["x"] * len(ids)))
    columns |= extra or {}
    shape = TableSchema(
        name=table_name(table),
        version=1,
        columns=tuple(Column(name=name, type=type_) for name, (type_, _) in columns.items()),
        primary_key=("id",),
    )
    arrays = [pa.array(values, type_.arrow) for type_, values in columns.values()]
    gone = pa.array([key in deleted for key in ids], pa.bool_())
    whole = RowBatch.struct(shape.after_type, arrays)
    return RowBatch.of(
        shape,
        op=pa.array([Op.DELETE if key in deleted else Op.UPDATE for key in ids], pa.uint8()),
        updated=RowBatch.timestamps(
            pa.array(walls or range(1, len(ids) + 1), pa.int64()), pa.array([0] * len(ids), pa.int32())
        ),
        key=RowBatch.struct(shape.key_type, arrays[:1]),
        after=RowBatch.struct(shape.after_type, arrays, mask=gone),
        before=whole if before else None,
    )


def version(message: Message) -> tuple[int, int]:
    """Return the id and the wall time of the row that *message* holds."""
    value = json.loads(message.value or b"")
    return value["id"], value["wall"]
