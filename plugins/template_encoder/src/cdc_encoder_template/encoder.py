"""The encoder: rows as URL-encoded forms."""

from urllib.parse import quote

import pyarrow as pa
from cdc_core import Encoder, MessageBatch, RowBatch, Timestamp, refuse_unavailable

Fields = list[tuple[str, list[str | None]]]  # the name of a field, and its text in each row; None: no such field


class TemplateEncoder(Encoder):
    """One field for each column that is not null, such as `after.item=a%20book`. The key has only the key columns.

    The encoder works on whole columns. Only the texts of a row are joined row by row.
    """

    file_extension = ".template"

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        refuse_unavailable(rows, format_="template")
        envelope = self.context.envelope
        key = _fields("", rows.column("key"))
        value = _fields("after.", rows.column("after"))
        value.append(
            ("deleted", ["true" if deleted else None for deleted in rows.column("after").is_null().to_pylist()])
        )
        before = envelope.column(rows, "before") if envelope.diff else None
        if before is not None:
            value += _fields("before.", before)
        for name in envelope.metadata:
            if name == "key":
                value += [(f"key.{column}", texts) for column, texts in key]
            elif name == "topic":
                value.append((name, [topic] * len(rows)))
            else:
                value.append((name, _timestamps(envelope.column(rows, name))))
        return MessageBatch(topic=topic, key=self._forms(key), value=self._forms(value), updated=rows.column("updated"))

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        """Return a field that no row has."""
        return f"resolved={timestamp}".encode()

    def _forms(self, fields: Fields) -> pa.Array:
        columns = [
            [None if text is None else f"{quote(name, safe='')}={quote(text, safe='')}" for text in texts]
            for name, texts in fields
        ]
        forms = (self.context.options.separator.join(filter(None, row)) for row in zip(*columns, strict=True))
        return pa.array([form.encode() for form in forms], pa.large_binary())


def _fields(prefix: str, rows: pa.StructArray) -> Fields:
    return [(prefix + rows.type[index].name, _texts(column)) for index, column in enumerate(rows.flatten())]


def _texts(column: pa.Array) -> list[str | None]:
    if pa.types.is_temporal(column.type):  # as numbers, because Python has no infinite dates and no year 10000
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    values = column.to_pylist()
    if pa.types.is_binary(column.type):
        return [None if value is None else value.hex() for value in values]
    return [None if value is None else str(value) for value in values]


def _timestamps(column: pa.StructArray) -> list[str | None]:
    return [str(Timestamp(value["wall"], value["logical"])) for value in column.to_pylist()]
