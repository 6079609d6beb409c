"""Mistakes with what stands beside the row, and with rows that are gone."""

from __future__ import annotations

from typing import Any

from cdc_conformance.reference.encoder import ReferenceEncoder
from cdc_core import Op, RowBatch, Timestamp

__all__ = [
    "BelievesInGhosts",
    "CutsTimes",
    "DescribesTheTopicInAscii",
    "KnowsNoTimeOfItsOwn",
    "KnowsNoTombstones",
    "PutsTheKeyInTableOrder",
    "ShowsTheRowTwice",
    "TakesTheTimeOfTheScan",
]


class KnowsNoTombstones(ReferenceEncoder):
    """Writes a deleted row in `key_only` like any other, as CockroachDB does."""

    def value(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> dict[str, Any] | None:
        value = super().value(rows, index, topic, key)
        return {} if self.context.envelope.envelope == "key_only" else value


class BelievesInGhosts(ReferenceEncoder):
    """Looks at the fields of a row alone to see whether it is there, and not at the row's own null."""

    def value(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> dict[str, Any] | None:
        value = super().value(rows, index, topic, key)
        after = rows.column("after")
        fields = {column.name: after.field(column.name)[index] for column in rows.schema.columns}
        if value is not None and "after" in value and any(field.is_valid for field in fields.values()):
            cells = (self.cell(rows, index, column, fields[column.name]) for column in rows.schema.columns)
            value["after"] = dict(zip(fields, cells, strict=True))
        return value


class ShowsTheRowTwice(ReferenceEncoder):
    """Takes the row after an update for the one before."""

    def image(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        updated = rows.column("op")[index].as_py() == Op.UPDATE
        return super().image(rows, index, "after" if updated else name)


class CutsTimes(ReferenceEncoder):
    """Has `updated` as Python's datetime on the way, which knows microseconds."""

    def timestamp(self, rows: RowBatch, index: int, name: str) -> str:
        time = Timestamp.parse(super().timestamp(rows, index, name))
        return str(Timestamp(time.wall // 1000 * 1000, time.logical)) if name == "updated" else str(time)


class TakesTheTimeOfTheScan(ReferenceEncoder):
    """Takes `updated` for the row's own time, which it is for all but scanned rows."""

    def timestamp(self, rows: RowBatch, index: int, name: str) -> str:  # noqa: ARG002 (that is the mistake)
        return super().timestamp(rows, index, "updated")


class KnowsNoTimeOfItsOwn(ReferenceEncoder):
    """Writes the time zero where the source does not know a row's own time."""

    def timestamp(self, rows: RowBatch, index: int, name: str) -> str:
        unknown = name not in rows.batch.schema.names
        return str(Timestamp()) if unknown else super().timestamp(rows, index, name)


class PutsTheKeyInTableOrder(ReferenceEncoder):
    """Picks the key for the value from the row, column by column as the table has them."""

    def value(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> dict[str, Any] | None:
        value = super().value(rows, index, topic, key)
        if value is not None and "key" in value:
            by_name = dict(zip(rows.schema.primary_key, key, strict=True))
            value["key"] = [by_name[column.name] for column in rows.schema.columns if column.name in by_name]
        return value


class DescribesTheTopicInAscii(ReferenceEncoder):
    """Writes the topic without the characters that a broker would not take."""

    def value(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> dict[str, Any] | None:
        return super().value(rows, index, topic.encode("ascii", "replace").decode(), key)
