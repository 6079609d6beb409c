"""The encoder: rows as forms of the web."""

from collections.abc import Sequence
from urllib.parse import quote

import pyarrow as pa
from cdc_core import Encoder, MessageBatch, RowBatch, TableSchema, Timestamp

Fields = list[tuple[str, list[str | None]]]  # name, and the text for each row; None where the row has no such field


class TemplateEncoder(Encoder):
    """One field for each column that is not null, `after.item=a%20book`; the key's fields alone are the key.

    Works on one column after the other, and row by row only to join their texts.
    """

    file_extension = ".form"

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        """Every column has a text."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        envelope = self.context.envelope
        key = _images("", rows.column("key"))
        value = _images("after.", rows.column("after"))
        value.append(("deleted", ["true" if gone else None for gone in rows.column("after").is_null().to_pylist()]))
        if envelope.diff and rows.has_before:
            value += _images("before.", rows.column("before"))
        updated = rows.column("updated").to_pylist()
        if envelope.updated:
            value.append(("updated", _timestamps(updated)))
        if envelope.mvcc_timestamp:
            known = rows.column("mvcc").to_pylist() if "mvcc" in rows.batch.schema.names else updated
            value.append(("mvcc", _timestamps([a or b for a, b in zip(known, updated, strict=True)])))
        if envelope.key_in_value:
            value += [(f"key.{name}", texts) for name, texts in key]
        if envelope.topic_in_value:
            value.append(("topic", [topic] * len(rows)))
        return MessageBatch(topic=topic, key=self._forms(key), value=self._forms(value), updated=rows.column("updated"))

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        """Return the one field that no row has."""
        return f"resolved={timestamp}".encode()

    def _forms(self, fields: Fields) -> pa.Array:
        columns = [
            [None if text is None else f"{quote(name, safe='')}={quote(text, safe='')}" for text in texts]
            for name, texts in fields
        ]
        forms = (self.context.options.separator.join(filter(None, row)) for row in zip(*columns, strict=True))
        return pa.array([form.encode() for form in forms], pa.large_binary())


def _images(prefix: str, rows: pa.StructArray) -> Fields:
    return [(prefix + rows.type[place].name, _texts(column)) for place, column in enumerate(rows.flatten())]


def _texts(column: pa.Array) -> list[str | None]:
    if pa.types.is_temporal(column.type):  # as the number that Arrow has: infinity is one, and the year 10000 too
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    values = column.to_pylist()
    if pa.types.is_binary(column.type):
        return [None if value is None else value.hex() for value in values]
    return [None if value is None else str(value) for value in values]


def _timestamps(values: list[dict[str, int]]) -> list[str | None]:
    return [str(Timestamp(value["wall"], value["logical"])) for value in values]
