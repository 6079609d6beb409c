"""The headers of messages, and the column that may hold them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_core import (
    CloudEvents,
    ConfigError,
    EncodeError,
    Kind,
    MessageBatch,
    RowBatch,
    TableSchema,
    TerminalSinkError,
    Timestamp,
    unavailable_by_column,
    unavailable_column,
)
from cdc_sink_kafka.event_headers import Header, constant_headers, event_headers, is_of_event, resolved_headers
from cdc_sink_kafka.options import KafkaOptions

__all__ = ["Header", "Headers", "sizes_of"]

_OVERHEAD = 5
"""The most bytes that a header takes besides name and value, unless it is very long."""
_MAX_SCHEMAS = 1000


def sizes_of(headers: Sequence[list[Header]]) -> npt.NDArray[np.int64]:
    """Return how many bytes the headers of each message take."""
    if headers and headers[0] is headers[-1]:  # all share one list
        return np.full(len(headers), _size_of(headers[0]), np.int64)
    return np.fromiter(map(_size_of, headers), np.int64, len(headers))


def _size_of(headers: list[Header]) -> int:
    return sum(len(name) + len(value or b"") + _OVERHEAD for name, value in headers)


class Headers:
    """Makes the headers that the options ask for, and those of events."""

    def __init__(self, options: KafkaOptions, events: CloudEvents | None = None) -> None:
        """Take the options about headers, and how messages are *events*, if they are.

        Raises: ConfigError for extra headers that are not text, and names that events use.
        """
        self._events = events
        self._column = options.headers_json_column_name
        self._updated = options.header_updated
        self._table = options.header_table
        if events is not None:
            _refuse_names_of_events(options)
        self.constant = (*constant_headers(events), *_constant(options))
        """The headers of every message, resolved marks included."""
        self._reduced: dict[int, tuple[TableSchema, TableSchema]] = {}

    def shape(self, schema: TableSchema) -> TableSchema:
        """Return *schema* without the column of headers. Raises: ConfigError when it cannot hold headers."""
        column = self._column
        if column is None:
            return schema
        if column not in {known.name for known in schema.columns}:
            raise ConfigError(
                f"table {schema.name} has no column '{column}', which the option headers_json_column_name names; add"
                " the column, or use a separate changefeed for the table"
            )
        if column in schema.primary_key:
            raise ConfigError(f"column {column} of table {schema.name} is part of the key, so it cannot hold headers")
        type_ = schema.column(column).type
        if type_.kind is not Kind.JSON:
            raise ConfigError(
                f"column {column} of table {schema.name} has the type {type_.source}, but only JSON can hold headers; "
                "change the type, or the option headers_json_column_name"
            )
        return replace(schema, columns=tuple(kept for kept in schema.columns if kept.name != column))

    def payload(self, rows: RowBatch) -> RowBatch:
        """Return *rows* without the column of headers. Raises: TerminalSinkError when the table has no such column."""
        if self._column is None:
            return rows
        schema = self._without_column(rows.schema)
        columns = {name: rows.column(name) for name in ("op", "updated", "mvcc", "key") if name in _names(rows)}
        for name in ("after", "before"):
            if name in _names(rows):
                columns[name] = _without_field(rows.column(name), schema.after_type)
        if rows.has_unavailable:
            masks = unavailable_by_column(rows)
            masks.pop(self._column, None)
            unavailable = unavailable_column(masks)
            if unavailable is not None:
                columns["unavailable"] = unavailable
        return RowBatch(schema=schema, batch=pa.RecordBatch.from_pydict(columns))

    def of(self, rows: RowBatch, batch: MessageBatch) -> list[list[Header]] | None:
        """Return the headers of each message of *batch*, which was made from *rows*; None when no message has headers.

        Raises: EncodeError when the column of headers holds anything but a JSON object, or is unavailable.
        """
        if self._column is None and self._updated is None and batch.headers is None and batch.attributes is None:
            shared = list(self.constant)
            if self._table is not None:
                shared.append((self._table, rows.schema.name.full.encode()))
            return [shared] * len(batch) if shared else None
        if batch.attributes is None:
            found = [list(self.constant) for _ in range(len(batch))]
        else:
            found = [[*headers, *self.constant] for headers in event_headers(batch.attributes, len(batch))]
        if self._table is not None:
            name = rows.schema.name.full.encode()
            for headers in found:
                headers.append((self._table, name))
        if self._updated is not None:
            updated = rows.column("updated")
            walls, logicals = updated.field("wall").to_pylist(), updated.field("logical").to_pylist()
            for headers, wall, logical in zip(found, walls, logicals, strict=True):
                headers.append((self._updated, f"{wall}.{logical:010d}".encode()))
        if batch.headers is not None:
            for headers, own in zip(found, batch.headers.to_pylist(), strict=True):
                headers.extend(own or ())
        if self._column is not None:
            self._refuse_unavailable(rows, self._column)
            for index, text in enumerate(_texts(rows, self._column)):
                if text is not None:
                    found[index].extend(self._parsed(text, rows, index))
        return found

    def of_mark(self, timestamp: Timestamp) -> list[Header]:
        """Return the headers of the resolved mark of *timestamp*."""
        event = self._events.resolved(timestamp) if self._events is not None and self._events.binary else {}
        return [*resolved_headers(event), *self.constant]

    def _refuse_unavailable(self, rows: RowBatch, column: str) -> None:
        unknown = unavailable_by_column(rows).get(column)
        if unknown is not None:
            row = int(unknown.argmax())
            raise EncodeError(
                f"column {column} of table {rows.schema.name}, which headers_json_column_name names, is unavailable in"
                f" the row with key {rows.shown_key(row)}, because the update left a large value unchanged. Run ALTER"
                f" TABLE {rows.schema.name} REPLICA IDENTITY FULL, or name another column",
                row=row,
            )

    def _parsed(self, text: str, rows: RowBatch, index: int) -> list[Header]:
        try:
            value = json.loads(text, parse_float=_Number, parse_int=_Number)
        except ValueError:
            value = text
        if value is None:
            return []
        if not isinstance(value, dict):
            raise EncodeError(
                f"column {self._column} of table {rows.schema.name}, which headers_json_column_name names, does not"
                f" hold a JSON object in the row with key {rows.shown_key(index)}; correct the row, or name another"
                " column",
                row=index,
            )
        taken = None if self._events is None else next(filter(is_of_event, value), None)
        if taken is not None:
            raise EncodeError(
                f"column {self._column} of table {rows.schema.name}, which headers_json_column_name names, contains"
                f" the header '{taken}', which is reserved for CloudEvents, in the row with key"
                f" {rows.shown_key(index)}; correct the row, or name another column",
                row=index,
            )
        try:
            return [(_usable(name), _bytes(entry)) for name, entry in value.items()]
        except ValueError:
            raise EncodeError(
                f"column {self._column} of table {rows.schema.name}, which headers_json_column_name names, has a "
                "header with NUL in its name, or with an unpaired surrogate, in the row with key "
                f"{rows.shown_key(index)}; correct the row, or name another column",
                row=index,
            ) from None

    def _without_column(self, schema: TableSchema) -> TableSchema:
        known = self._reduced.get(id(schema))
        if known is not None:
            return known[1]
        same = next((reduced for whole, reduced in self._reduced.values() if whole == schema), None)
        try:
            reduced = same or self.shape(schema)
        except ConfigError as error:
            raise TerminalSinkError(str(error)) from None
        if len(self._reduced) >= _MAX_SCHEMAS:
            self._reduced.clear()
        self._reduced[id(schema)] = (schema, reduced)
        return reduced


def _constant(options: KafkaOptions) -> tuple[Header, ...]:
    found: list[Header] = []
    for name, value in (options.extra_headers or {}).items():
        if not isinstance(value, str):
            raise ConfigError(f"sink 'kafka': the header '{name}' of extra_headers must be a string, not {value!r}")
        try:
            found.append((_usable(name), value.encode()))
        except ValueError:
            raise ConfigError(
                f"sink 'kafka': header {name!r} of extra_headers has NUL in its name, or an unpaired surrogate; "
                "remove that character"
            ) from None
    return tuple(found)


def _refuse_names_of_events(options: KafkaOptions) -> None:
    names = dict.fromkeys(options.extra_headers or {}, "extra_headers")
    names |= {name: option for option in ("header_updated", "header_table") if (name := getattr(options, option))}
    taken = next(filter(is_of_event, names), None)
    if taken is not None:
        raise ConfigError(
            f"sink 'kafka': the header '{taken}' of {names[taken]} is set by envelope 'cloudevents'; choose another"
            " name"
        )


def _usable(name: str) -> str:
    """Return *name*. Raises: ValueError for a name that confluent-kafka would cut off or crash on."""
    if "\0" in name:
        raise ValueError("the name of a header cannot contain NUL")
    name.encode()
    return name


def _names(rows: RowBatch) -> Sequence[str]:
    names: Sequence[str] = rows.batch.schema.names
    return names


def _without_field(structs: pa.StructArray, type_: pa.StructType) -> pa.StructArray:
    children = [structs.field(field.name) for field in type_]
    mask = structs.is_null() if structs.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)


def _texts(rows: RowBatch, column: str) -> list[str | None]:
    """Return the JSON of each row; for a delete, that of the row before it, if known."""
    after = rows.column("after")
    texts = [None if row is None else row[column] for row in _cells(after, column)]
    if after.null_count and rows.has_before:
        before = _cells(rows.column("before"), column)
        for index, gone in enumerate(after.is_null().to_pylist()):
            if gone and before[index] is not None:
                texts[index] = before[index][column]
    return texts


def _cells(structs: pa.StructArray, column: str) -> list[Any]:
    position = structs.type.get_field_index(column)
    mask = structs.is_null() if structs.null_count else None
    fields = [structs.type.field(position)]
    return list(pa.StructArray.from_arrays([structs.field(position)], fields=fields, mask=mask).to_pylist())


class _Number(str):
    """A number as written: a float would lose digits."""


def _bytes(value: Any) -> bytes | None:
    """Return text unchanged, the JSON null as a header without a value, and any other value as its JSON text."""
    if value is None:
        return None
    return (value if isinstance(value, str) else _json(value)).encode()


def _json(value: Any) -> str:
    if isinstance(value, _Number):
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(name)}: {_json(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
