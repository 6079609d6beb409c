"""Builds row batches from Python values, for the suites and for tests of plugins.

    orders = table("orders", {"id": INT8, "note": TEXT})
    batch = rows(orders, [Change({"id": 1, "note": "a"}), Change({"id": 1}, op=Op.DELETE)])

The same arguments always give the same batch. A change without a time is one nanosecond later than the previous one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from cdc_core import Column, ColumnType, Kind, Op, RowBatch, TableName, TableSchema, Timestamp
from cdc_core.rows import UNAVAILABLE_TYPE

START = Timestamp(1_700_000_000_000_000_000)
"""The default of `updated` for the first change."""

INT8 = ColumnType(kind=Kind.INT, source="bigint", bits=64)
TEXT = ColumnType(kind=Kind.STRING, source="text")
_INT4 = ColumnType(kind=Kind.INT, source="integer", bits=32)

EVERY_KIND: dict[str, ColumnType] = {
    "id": INT8,
    "a_bool": ColumnType(kind=Kind.BOOL, source="boolean"),
    "an_int2": ColumnType(kind=Kind.INT, source="smallint", bits=16),
    "an_int4": _INT4,
    "an_int8": INT8,
    "a_float4": ColumnType(kind=Kind.FLOAT, source="real", bits=32),
    "a_float8": ColumnType(kind=Kind.FLOAT, source="double precision", bits=64),
    "a_decimal": ColumnType(kind=Kind.DECIMAL, source="numeric(20,4)", precision=20, scale=4),
    "a_text": TEXT,
    "some_bytes": ColumnType(kind=Kind.BYTES, source="bytea"),
    "a_uuid": ColumnType(kind=Kind.UUID, source="uuid"),
    "a_date": ColumnType(kind=Kind.DATE, source="date"),
    "a_time": ColumnType(kind=Kind.TIME, source="time without time zone"),
    "a_timetz": ColumnType(kind=Kind.TIMETZ, source="time with time zone"),
    "a_timestamp": ColumnType(kind=Kind.TIMESTAMP, source="timestamp without time zone"),
    "a_timestamptz": ColumnType(kind=Kind.TIMESTAMPTZ, source="timestamp with time zone"),
    "an_interval": ColumnType(kind=Kind.INTERVAL, source="interval"),
    "a_json": ColumnType(kind=Kind.JSON, source="jsonb"),
    "an_enum": ColumnType(kind=Kind.ENUM, source="mood", labels=("sad", "ok", "happy")),
    "an_array": ColumnType(
        kind=Kind.ARRAY, source="integer[]", element=ColumnType(kind=Kind.INT, source="integer", bits=32)
    ),
    "a_composite": ColumnType(kind=Kind.COMPOSITE, source="pair"),
}
"""Columns of every kind and width, and the key column `id`."""

_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change. `values` is the row after the change; for a delete, at least its key. Other columns are null."""

    values: Mapping[str, Any] = field(kw_only=False)
    op: Op = Op.INSERT
    updated: Timestamp | None = None
    """By default one nanosecond after the previous change."""
    before: Mapping[str, Any] | None = None
    mvcc: Timestamp | None = None
    """By default the same as `updated`."""
    unavailable: Sequence[str] = ()
    """The columns whose values the source does not know."""


def table(
    name: str,
    columns: Mapping[str, ColumnType],
    *,
    version: int = 1,
    primary_key: Sequence[str] = ("id",),
    schema: str = "public",
    database: str = "shop",
) -> TableSchema:
    """Return the schema of a table. All columns but those of the key are nullable."""
    return TableSchema(
        name=TableName(database, schema, name),
        version=version,
        columns=tuple(
            Column(name=column, type=type_, nullable=column not in primary_key) for column, type_ in columns.items()
        ),
        primary_key=tuple(primary_key),
    )


def rows(
    schema: TableSchema,
    changes: Sequence[Change],
    *,
    start: Timestamp = START,
    before: bool = False,
    mvcc: bool = False,
) -> RowBatch:
    """Return *changes* as a batch, with the columns `before` and `mvcc` on request.

    *start* is `updated` of the first change, unless the change has its own.
    """
    times: list[Timestamp] = []
    for change in changes:
        following = Timestamp(times[-1].wall + 1) if times else start
        times.append(following if change.updated is None else change.updated)
    keys: list[Mapping[str, Any] | None] = [
        {name: change.values[name] for name in schema.primary_key} for change in changes
    ]
    after = [None if change.op is Op.DELETE else change.values for change in changes]
    own = [updated if change.mvcc is None else change.mvcc for change, updated in zip(changes, times, strict=True)]
    return RowBatch.of(
        schema,
        op=pa.array([int(change.op) for change in changes], pa.uint8()),
        updated=_timestamps(times),
        mvcc=_timestamps(own) if mvcc else None,
        key=_structs(schema.key_type, keys),
        after=_structs(schema.after_type, after),
        before=_structs(schema.after_type, [change.before for change in changes]) if before else None,
        unavailable=_lists(change.unavailable for change in changes),
    )


def sample(type_: ColumnType, number: int) -> Any:
    """Return value *number* of a column. Neighbouring numbers give different values of the same type, never null.

    Texts are ASCII, floats are finite and have an exact decimal form, and Python can represent every value.
    """
    odd = -1 if number % 2 else 1
    match type_.kind:
        case Kind.BOOL:
            return number % 2 == 1
        case Kind.INT:
            most = 2 ** ((type_.bits or 64) - 1) - 1
            return odd * (most - number % most)
        case Kind.FLOAT:
            return odd * (number + 0.5) * 2.0**-4
        case Kind.DECIMAL:
            return f"{odd * (10**12 + number)}." + "1234567890123456789"[: type_.scale or 4]
        case Kind.BYTES:
            return bytes((number + step) % 256 for step in range(0, 256, 5)) + b"\n\x00\r"
        case Kind.UUID:
            return str(uuid.UUID(int=number * 0x1_0000_0001_0000_0001_0000_0001 % 2**128))
        case Kind.DATE:
            return date(1970, 1, 1) + timedelta(days=odd * (number % 100_000))
        case Kind.TIME:
            return (datetime(2000, 1, 1) + timedelta(microseconds=number * 1_000_001 % _DAY)).time()
        case Kind.TIMETZ:
            return f"{number % 24:02}:30:00.000001+02"
        case Kind.TIMESTAMP:
            return datetime(2024, 2, 29, 23, 59, 59, 999_999) + timedelta(microseconds=odd * number)
        case Kind.TIMESTAMPTZ:
            return datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC) + timedelta(microseconds=odd * number)
        case Kind.INTERVAL:
            return f"{number} days 01:00:00"
        case Kind.JSON:
            return f'{{"a": [{number}, null, true, "x\\ny"], "b": {{"c": 1.50}}}}'
        case Kind.ENUM:
            return type_.labels[number % len(type_.labels)]
        case Kind.ARRAY:
            return f"[{number}, null, {-number}]"
        case Kind.COMPOSITE:
            return f'{{"left": {number}, "right": "r"}}'
        case Kind.STRING:
            return f'text {number} with "quotes", a \\ and\na line end'


def _lists(several: Iterable[Sequence[str]]) -> pa.ListArray | None:
    lists = [list(names) or None for names in several]
    return pa.array(lists, UNAVAILABLE_TYPE) if any(lists) else None


def _structs(type_: pa.StructType, values: Sequence[Mapping[str, Any] | None]) -> pa.StructArray:
    fields = [
        pa.array([None if value is None else value.get(column.name) for value in values], column.type)
        for column in type_
    ]
    return RowBatch.struct(type_, fields, mask=pa.array([value is None for value in values], pa.bool_()))


def _timestamps(values: Sequence[Timestamp]) -> pa.StructArray:
    return RowBatch.timestamps(
        pa.array([value.wall for value in values], pa.int64()),
        pa.array([value.logical for value in values], pa.int32()),
    )
