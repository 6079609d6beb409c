"""Mistakes with keys, and with versions of a table."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pyarrow as pa

from cdc_conformance.reference.encoder import ReferenceEncoder
from cdc_core import EncoderContext, MessageBatch, Op, RowBatch

__all__ = [
    "AddsTheVersionToKeys",
    "CachesTheFirstVersion",
    "KeepsThePrimaryKey",
    "LowercasesKeys",
    "SortsKeyColumns",
    "SpacesKeysOfDeletes",
]


class SpacesKeysOfDeletes(ReferenceEncoder):
    """Writes the keys of deletes with another JSON library, which adds a blank after each comma."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        batch = super().encode(rows, topic=topic)
        ops = rows.column("op").to_pylist()
        keys = [
            json.dumps(json.loads(key)).encode() if op == Op.DELETE else key
            for key, op in zip(batch.key.to_pylist(), ops, strict=True)
        ]
        return dataclasses.replace(batch, key=pa.array(keys, pa.large_binary()))


class LowercasesKeys(ReferenceEncoder):
    """Converts texts in keys to lower case."""

    def key(self, rows: RowBatch, index: int) -> list[Any]:
        return [value.lower() if isinstance(value, str) else value for value in super().key(rows, index)]


class SortsKeyColumns(ReferenceEncoder):
    """Sorts the columns of the key by name."""

    def key(self, rows: RowBatch, index: int) -> list[Any]:
        by_name = dict(zip(rows.schema.primary_key, super().key(rows, index), strict=True))
        return [by_name[name] for name in sorted(by_name)]


class KeepsThePrimaryKey(ReferenceEncoder):
    """Ignores the option key_column."""

    def keyed(self, rows: RowBatch) -> RowBatch:
        return rows


class AddsTheVersionToKeys(ReferenceEncoder):
    """Adds the version of the table to keys, as blanks, like the id of a schema of all columns."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        batch = super().encode(rows, topic=topic)
        keys = [key + b" " * rows.schema.version for key in batch.key.to_pylist()]
        return dataclasses.replace(batch, key=pa.array(keys, pa.large_binary()))


class CachesTheFirstVersion(ReferenceEncoder):
    """Caches the columns of a table from its first batch."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.columns: dict[str, list[str]] = {}

    def image(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        own = [column.name for column in rows.schema.columns]
        known = self.columns.setdefault(rows.schema.name.full, own)
        image = super().image(rows, index, name)
        return None if image is None else {column: image[column] for column in known if column in image}
