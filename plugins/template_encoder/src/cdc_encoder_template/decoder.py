"""The decoder: reads what the encoder writes, for tests, audits and small consumers."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa
from cdc_core import ColumnType, DecodedRow, Decoder, Kind, TableSchema, Timestamp, plain_value


class TemplateDecoder(Decoder):
    """Returns values as they are in a `RowBatch`, according to the types of the columns."""

    def message(self, schema: TableSchema, key: bytes | None, value: bytes | None) -> DecodedRow:
        if value is None:
            raise ValueError("a message without a value, which envelope 'wrapped' does not have")
        return self._row(schema, None if key is None else self._fields(key), self._fields(value))

    def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
        *lines, rest = body.split(b"\n")
        if rest:
            raise ValueError(f"the last line is incomplete: {rest[:80]!r}")
        return [self._row(schema, None, self._fields(line)) for line in lines]

    def resolved(self, value: bytes | None) -> Timestamp | None:
        text = None if value is None else self._fields(value).get("resolved")
        return None if text is None else Timestamp.parse(text)

    def _fields(self, form: bytes) -> dict[str, str]:
        separator = self.context.options.separator
        return dict(parse_qsl(form.decode(), keep_blank_values=True, strict_parsing=True, separator=separator))

    def _row(self, schema: TableSchema, key: Mapping[str, str] | None, value: Mapping[str, str]) -> DecodedRow:
        in_value = _image(schema, value, "key.", schema.primary_key)
        keys = in_value if key is None else _image(schema, key, "", schema.primary_key)
        columns = [column.name for column in schema.columns]
        return DecodedRow(
            key=None if keys is None else tuple(keys.values()),
            after=_image(schema, value, "after.", columns),
            before=_image(schema, value, "before.", columns),
            updated=_timestamp(value.get("updated")),
            mvcc=_timestamp(value.get("mvcc_timestamp")),
            key_in_value=None if in_value is None else tuple(in_value.values()),
            topic_in_value=value.get("topic"),
        )


def _image(
    schema: TableSchema, fields: Mapping[str, str], prefix: str, columns: Sequence[str]
) -> dict[str, Any] | None:
    """Return the values of the fields that begin with *prefix*, those of *columns* first. A missing field is a null."""
    texts = {name.removeprefix(prefix): text for name, text in fields.items() if name.startswith(prefix)}
    if not texts:
        return None
    types = {column.name: column.type for column in schema.columns}
    names = [*columns, *(name for name in texts if name not in types)]
    return {name: _value(types.get(name), texts.get(name)) for name in names}


def _value(type_: ColumnType | None, text: str | None) -> Any:
    if type_ is None or text is None:
        return text
    if pa.types.is_temporal(type_.arrow):
        return plain_value(pa.scalar(int(text), type_.arrow))
    if type_.kind is Kind.BOOL:
        return text == "True"
    if type_.kind is Kind.BYTES:
        return bytes.fromhex(text)
    return {Kind.INT: int, Kind.FLOAT: float}.get(type_.kind, str)(text)


def _timestamp(text: str | None) -> Timestamp | None:
    return None if text is None else Timestamp.parse(text)
