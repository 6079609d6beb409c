"""Mistakes with metadata and with deleted rows."""

from __future__ import annotations

from typing import Any

from cdc_conformance.reference.encoder import ReferenceEncoder
from cdc_core import Op, RowBatch, RowPlace, Timestamp

__all__ = [
    "PutsTheKeyInTableOrder",
    "ReadsValuesUnderNulls",
    "ShowsTheRowAfterTwice",
    "TruncatesTimes",
    "UsesTheTimeOfTheScan",
    "WritesNoTombstones",
    "WritesTheTopicInAscii",
    "WritesZeroForUnknownTimes",
]


class WritesNoTombstones(ReferenceEncoder):
    """Writes a deleted row in `key_only` like any other, as CockroachDB does."""

    def value(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> dict[str, Any] | None:
        value = super().value(rows, index, topic, key)
        return {} if self.context.envelope.row is RowPlace.NOWHERE else value


class ReadsValuesUnderNulls(ReferenceEncoder):
    """Ignores the null of a row when its fields have values."""

    def value(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> dict[str, Any] | None:
        value = super().value(rows, index, topic, key)
        after = rows.column("after")
        known = [column for column in rows.schema.columns if column.name not in self.lacking(rows, index)]
        fields = {column.name: after.field(column.name)[index] for column in known}
        if value is not None and "after" in value and any(field.is_valid for field in fields.values()):
            cells = (self.cell(rows, index, column, fields[column.name]) for column in known)
            value["after"] = dict(zip(fields, cells, strict=True))
        return value


class ShowsTheRowAfterTwice(ReferenceEncoder):
    """Writes the row after an update as the row before."""

    def image(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        updated = rows.column("op")[index].as_py() == Op.UPDATE
        return super().image(rows, index, "after" if updated else name)


class TruncatesTimes(ReferenceEncoder):
    """Converts `updated` to Python's datetime, which has microseconds."""

    def timestamp(self, rows: RowBatch, index: int, name: str) -> str:
        time = Timestamp.parse(super().timestamp(rows, index, name))
        return str(Timestamp(time.wall // 1000 * 1000, time.logical)) if name == "updated" else str(time)


class UsesTheTimeOfTheScan(ReferenceEncoder):
    """Writes `updated` as the row's own time, which is wrong for scanned rows."""

    def timestamp(self, rows: RowBatch, index: int, name: str) -> str:  # noqa: ARG002
        return super().timestamp(rows, index, "updated")


class WritesZeroForUnknownTimes(ReferenceEncoder):
    """Writes the time zero when the source does not know a row's own time."""

    def timestamp(self, rows: RowBatch, index: int, name: str) -> str:
        unknown = name not in rows.batch.schema.names
        return str(Timestamp()) if unknown else super().timestamp(rows, index, name)


class PutsTheKeyInTableOrder(ReferenceEncoder):
    """Writes the key in the value in the column order of the table."""

    def value(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> dict[str, Any] | None:
        value = super().value(rows, index, topic, key)
        if value is not None and "key" in value:
            by_name = dict(zip(rows.schema.primary_key, key, strict=True))
            value["key"] = [by_name[column.name] for column in rows.schema.columns if column.name in by_name]
        return value


class WritesTheTopicInAscii(ReferenceEncoder):
    """Replaces characters of the topic that are not ASCII."""

    def value(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> dict[str, Any] | None:
        return super().value(rows, index, topic.encode("ascii", "replace").decode(), key)
