"""Dead letters: rows that the encoder or the sink refused, written to a sink of their own.

A dead letter is a row of a table that no database has (`dead_letter_table`), so any sink can take it. People read in it
what was wrong with which row, and `cdc replay-dead-letters` sends the row again.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.config.changefeed import dead_letter_table
from cdc_core.delivery.row_json import key_column, key_json, row_json
from cdc_core.rows import TIMESTAMP_TYPE, Op, RowBatch, fields_by_name
from cdc_core.schema import Column, ColumnType, Kind, TableSchema
from cdc_core.timestamp import Timestamp
from cdc_core.unavailable import unavailable_by_column

BLOCKED = "blocked"
"""Stage of a row that waits for an earlier row of its key. Other rows have ENCODE or SINK, whichever refused them."""

_MAX_ERROR_CHARACTERS = 4000
_MAX_SHOWN_BYTES = 1024 * 1024
"""A value above this size is not in `row`."""
_UNPRINTED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PAYLOAD = "payload"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that is not delivered: a batch of one row, the stage, and the reason."""

    row: RowBatch
    stage: str
    reason: str

    @property
    def table(self) -> str:
        """Full name of its table."""
        return self.row.schema.name.full

    @property
    def key(self) -> str:
        """Its key, as `key_json`."""
        return key_json(self.row.schema, self.row.column("key")[0])

    @property
    def updated(self) -> Timestamp:
        return Timestamp(**self.row.column("updated")[0].as_py())

    @property
    def shown_reason(self) -> str:
        """The reason in one line, shortened if it is very long. Has no control characters: stores refuse NUL."""
        text = _UNPRINTED.sub("\N{REPLACEMENT CHARACTER}", " ".join(self.reason.split()))
        return text if len(text) <= _MAX_ERROR_CHARACTERS else text[: _MAX_ERROR_CHARACTERS - 1] + "…"

    def __str__(self) -> str:
        row = self.row
        return f"the row of table {row.schema.name} with key {row.shown_key(0)}, updated {self.updated}"


def dead_letter_schema(changefeed: str) -> TableSchema:
    """Return the columns of `dead_letter_table`.

    `row` is the row for people, without very large values; `payload` is the row exactly, as base64 of a zlib-compressed
    Arrow IPC stream.
    """
    text, json, number = (
        ColumnType(kind=Kind.STRING, source="text"),
        ColumnType(kind=Kind.JSON, source="json"),
        ColumnType(kind=Kind.INT, source="integer", bits=32),
    )
    columns = {
        "changefeed": text,
        "table": text,
        "key": json,
        "updated": text,
        "op": text,
        "stage": text,
        "error": text,
        "row": json,
        "schema_version": number,
        _PAYLOAD: text,
    }
    return TableSchema(
        name=dead_letter_table(changefeed),
        version=1,
        columns=tuple(Column(name=name, type=type_) for name, type_ in columns.items()),
        primary_key=("table", "key", "updated"),
    )


def dead_letter_batch(changefeed: str, rows: Sequence[BadRow]) -> RowBatch:
    """Return *rows* as dead letters, rows of `dead_letter_schema`. The same rows give the same letters."""
    schema = dead_letter_schema(changefeed)
    letters = [_letter(changefeed, row) for row in rows]
    columns = {column.name: pa.array([letter[column.name] for letter in letters]) for column in schema.columns}
    after = [columns[field.name].cast(field.type) for field in schema.after_type]
    return RowBatch.of(
        schema,
        op=pa.array([Op.INSERT] * len(rows), pa.uint8()),
        updated=pa.concat_arrays([row.row.column("updated") for row in rows]).cast(TIMESTAMP_TYPE),
        key=RowBatch.struct(schema.key_type, [columns[name] for name in schema.primary_key]),
        after=RowBatch.struct(schema.after_type, after),
    )


def row_of(letter: Mapping[str, Any]) -> RowBatch:
    """Return the row in a dead letter, as a batch of one. Raises: ValueError when *letter* is not a dead letter."""
    try:
        return RowBatch.from_ipc(zlib.decompress(base64.b64decode(letter[_PAYLOAD], validate=True)))
    except (KeyError, TypeError, binascii.Error, zlib.error, pa.ArrowException) as error:
        raise ValueError(f"not a dead letter: {error}") from error


def _letter(changefeed: str, bad: BadRow) -> dict[str, Any]:
    row = bad.row
    image = row.column("after")[0]
    if not image.is_valid and row.has_before:
        image = row.column("before")[0]
    return {
        "changefeed": changefeed,
        "table": bad.table,
        "key": bad.key,
        "updated": str(bad.updated),
        "op": Op(row.column("op")[0].as_py()).name.lower(),
        "stage": bad.stage,
        "error": bad.shown_reason,
        "row": row_json(row.schema, image, without={*unavailable_by_column(row), *_large(row)}),
        "schema_version": row.schema.version,
        _PAYLOAD: base64.b64encode(zlib.compress(row.to_ipc())).decode(),
    }


def _large(row: RowBatch) -> set[str]:
    """Return the columns of which the image of *row* after or before the change has a very large value."""
    images = [row.column(name) for name in ("after", "before") if name in row.batch.schema.names]
    values = [pair for image in images for pair in fields_by_name(image).items()]
    return {name for name, array in values if array.nbytes > _MAX_SHOWN_BYTES and name not in row.schema.primary_key}


class BlockedKeys:
    """A set of keys, as (full table name, `key_json`), for finding their rows in batches that have few or none."""

    def __init__(self, keys: Iterable[Sequence[str]] = ()) -> None:
        self._keys: dict[str, set[str]] = {}
        self._sets: dict[str, tuple[pa.StructType, list[pa.Array | None]]] = {}
        for table, key in keys:
            self.add(table, key)

    def add(self, table: str, key: str) -> None:
        self._keys.setdefault(table, set()).add(key)
        self._sets.pop(table, None)

    def find(self, rows: RowBatch) -> Sequence[int]:
        """Return the indices of *rows* that have one of the keys, ascending.

        Arrow looks up each key column; only rows whose every key column has the value of some key are compared one by
        one.
        """
        table = rows.schema.name.full
        keys = self._keys.get(table)
        if not keys or not len(rows):
            return ()
        column = rows.column("key")
        found = np.ones(len(rows), bool)
        for index, values in enumerate(self._value_sets(table, rows.schema.key_type)):
            if values is not None:
                found &= pc.is_in(column.field(index), value_set=values).to_numpy(zero_copy_only=False)
        return [int(row) for row in np.flatnonzero(found) if key_json(rows.schema, column[int(row)]) in keys]

    def _value_sets(self, table: str, key_type: pa.StructType) -> list[pa.Array | None]:
        """Return the values of the keys of *table* in each key column; None where Arrow cannot look them up."""
        known = self._sets.get(table)
        if known is not None and known[0] == key_type:
            return known[1]
        keys = [json.loads(key) for key in self._keys[table]]
        fit = [key for key in keys if len(key) == key_type.num_fields]
        sets = [key_column([key[index] for key in fit], field.type) for index, field in enumerate(key_type)]
        self._sets[table] = key_type, sets
        return sets
