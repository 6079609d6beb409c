"""Keys of every type are recognized as themselves, and rows of blocked keys are found among others."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any

import pyarrow as pa
import pytest

from cdc_core import Column, ColumnType, Kind, Op, RowBatch, TableName, TableSchema
from cdc_core.delivery.dead_letters import BlockedKeys
from cdc_core.delivery.row_json import key_column, key_json, row_json

NAME = TableName("db", "public", "t")
NEVER = 2**63 - 1

TYPES: dict[str, tuple[ColumnType, list[Any], list[str]]] = {
    "bool": (ColumnType(kind=Kind.BOOL, source="boolean"), [True, False], ["[true]", "[false]"]),
    "smallint": (ColumnType(kind=Kind.INT, source="smallint", bits=16), [-7, 7], ["[-7]", "[7]"]),
    "bigint": (
        ColumnType(kind=Kind.INT, source="bigint", bits=64),
        [2**62 + 1, 2**62],
        ["[4611686018427387905]", "[4611686018427387904]"],
    ),
    "double": (
        ColumnType(kind=Kind.FLOAT, source="double precision", bits=64),
        [0.1, float("nan"), float("-inf")],
        ["[0.1]", '["NaN"]', '["-Infinity"]'],
    ),
    "real": (ColumnType(kind=Kind.FLOAT, source="real", bits=32), [0.5, 0.25], ["[0.5]", "[0.25]"]),
    "numeric": (ColumnType(kind=Kind.DECIMAL, source="numeric"), ["1.0", "NaN"], ['["1.0"]', '["NaN"]']),
    "text": (ColumnType(kind=Kind.STRING, source="text"), ['a"b', "", "é\n"], ['["a\\"b"]', '[""]', '["é\\n"]']),
    "bytea": (ColumnType(kind=Kind.BYTES, source="bytea"), [b"\x00\xff", b""], ['["\\\\x00ff"]', '["\\\\x"]']),
    "uuid": (
        ColumnType(kind=Kind.UUID, source="uuid"),
        ["6f9619ff-8b86-d011-b42d-00c04fc964ff", "0f9619ff-8b86-d011-b42d-00c04fc964ff"],
        ['["6f9619ff-8b86-d011-b42d-00c04fc964ff"]', '["0f9619ff-8b86-d011-b42d-00c04fc964ff"]'],
    ),
    "date": (
        ColumnType(kind=Kind.DATE, source="date"),
        [date(2024, 2, 29), 2**31 - 1, 5_000_000],
        ['["2024-02-29"]', '["infinity"]', '["5000000"]'],
    ),
    "time": (
        ColumnType(kind=Kind.TIME, source="time"),
        [time(1, 2, 3, 4), 86_400_000_000],
        ['["01:02:03.000004"]', '["24:00:00"]'],
    ),
    "timestamp": (
        ColumnType(kind=Kind.TIMESTAMP, source="timestamp"),
        [datetime(2024, 1, 1, 0, 0, 0, 1), NEVER],
        ['["2024-01-01T00:00:00.000001"]', '["infinity"]'],
    ),
    "timestamptz": (
        ColumnType(kind=Kind.TIMESTAMPTZ, source="timestamptz"),
        [datetime(2024, 1, 1, tzinfo=UTC), -NEVER - 1],
        ['["2024-01-01T00:00:00+00:00"]', '["-infinity"]'],
    ),
    "interval": (ColumnType(kind=Kind.INTERVAL, source="interval"), ["1 day"], ['["1 day"]']),
    "jsonb": (ColumnType(kind=Kind.JSON, source="jsonb"), ['{"a": 1}'], ['["{\\"a\\": 1}"]']),
    "enum": (ColumnType(kind=Kind.ENUM, source="mood", labels=("ok",)), ["ok"], ['["ok"]']),
}


def schema_of(*types: ColumnType) -> TableSchema:
    names = [f"k{number}" for number in range(len(types))]
    return TableSchema(
        name=NAME,
        version=1,
        columns=tuple(Column(name=name, type=type_) for name, type_ in zip(names, types, strict=True)),
        primary_key=tuple(names),
    )


def rows_of(schema: TableSchema, *columns: list[Any]) -> RowBatch:
    arrays = [_array(values, field.type) for values, field in zip(columns, schema.key_type, strict=True)]
    count = len(columns[0])
    return RowBatch.of(
        schema,
        op=pa.array([Op.INSERT] * count, pa.uint8()),
        updated=RowBatch.timestamps(pa.array(range(count), pa.int64()), pa.array([0] * count, pa.int32())),
        key=RowBatch.struct(schema.key_type, arrays),
        after=RowBatch.struct(schema.after_type, arrays),
    )


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Numbers stand for values that Python lacks."""
    if pa.types.is_temporal(type_):
        number = pa.int32() if type_.bit_width == 32 else pa.int64()
        plain = [pa.scalar(v, number).cast(type_) if isinstance(v, int) else pa.scalar(v, type_) for v in values]
        return pa.concat_arrays([pa.repeat(value, 1) for value in plain])
    return pa.array(values, type_)


@pytest.mark.parametrize("name", TYPES)
def test_a_key_has_one_text_and_its_rows_are_found_by_it(name: str) -> None:
    type_, values, texts = TYPES[name]
    schema = schema_of(type_)
    rows = rows_of(schema, values)
    keys = rows.column("key")
    assert [key_json(schema, keys[row]) for row in range(len(rows))] == texts
    for row, text in enumerate(texts):
        assert BlockedKeys([(NAME.full, text)]).find(rows) == [row]
    assert BlockedKeys([(NAME.full, text) for text in texts]).find(rows) == list(range(len(rows)))


def test_keys_of_several_columns_are_compared_as_a_whole() -> None:
    schema = schema_of(TYPES["bigint"][0], TYPES["text"][0])
    rows = rows_of(schema, [1, 1, 2, 2], ["a", "b", "a", "b"])
    blocked = BlockedKeys([(NAME.full, '[1, "b"]'), (NAME.full, '[2, "a"]')])
    assert blocked.find(rows) == [1, 2]
    assert blocked.find(rows.slice(1, 2)) == [0, 1]


def test_keys_belong_to_their_table() -> None:
    rows = rows_of(schema_of(TYPES["bigint"][0]), [1, 2])
    assert not BlockedKeys([("db.public.other", "[1]")]).find(rows)


def test_a_key_that_is_added_later_is_found() -> None:
    rows = rows_of(schema_of(TYPES["bigint"][0]), [1, 2])
    blocked = BlockedKeys()
    assert not blocked.find(rows)
    blocked.add(NAME.full, "[1]")
    assert blocked.find(rows) == [0]
    blocked.add(NAME.full, "[2]")
    assert blocked.find(rows) == [0, 1]


def test_keys_of_another_type_or_number_of_columns_block_nothing() -> None:
    rows = rows_of(schema_of(TYPES["smallint"][0]), [1, 2])
    blocked = BlockedKeys([(NAME.full, '["text"]'), (NAME.full, "[1, 2]"), (NAME.full, "[100000]")])
    assert list(blocked.find(rows)) == []


def test_only_rows_that_may_have_a_blocked_key_are_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of(TYPES["bigint"][0], TYPES["text"][0])
    rows = rows_of(schema, list(range(10_000)), ["a", "b"] * 5_000)
    looked: list[str] = []

    def counting(schema: TableSchema, key: pa.StructScalar) -> str:
        looked.append(key_json(schema, key))
        return looked[-1]

    monkeypatch.setattr("cdc_core.delivery.dead_letters.key_json", counting)
    assert BlockedKeys([(NAME.full, '[7, "b"]'), (NAME.full, '[8, "b"]')]).find(rows) == [7]
    assert looked == ['[7, "b"]']


def test_a_column_whose_values_arrow_cannot_read_is_left_to_the_exact_comparison() -> None:
    assert key_column(["infinity"], pa.timestamp("us")) is None
    assert key_column(["24:00:00"], pa.time64("us")) is None
    assert key_column([2**70], pa.int64()) is None


def test_a_key_that_is_no_utf8_is_found() -> None:
    schema = schema_of(TYPES["text"][0], TYPES["bigint"][0])
    texts = pa.array([b"\xffa", b"a", b"a\\b", b"\xc3\xa9"]).cast(pa.binary()).buffers()
    rows = rows_of(schema, ["", "", "", ""], [1, 2, 3, 4])
    keys = RowBatch.struct(
        schema.key_type, [pa.StringArray.from_buffers(4, texts[1], texts[2]), rows.column("key").field(1)]
    )
    columns = {name: rows.column(name) for name in ("op", "updated")}
    rows = RowBatch.of(schema, **columns, key=keys, after=keys.cast(schema.after_type))
    for row in range(4):
        assert BlockedKeys([(NAME.full, key_json(schema, keys[row]))]).find(rows) == [row]


def test_a_row_is_shown_as_valid_json_with_its_own_json_inside() -> None:
    types = {
        "id": ColumnType(kind=Kind.INT, source="bigint", bits=64),
        "doc": ColumnType(kind=Kind.JSON, source="json"),
        "broken": ColumnType(kind=Kind.JSON, source="json"),
        "tags": ColumnType(kind=Kind.ARRAY, source="text[]"),
        "data": ColumnType(kind=Kind.BYTES, source="bytea"),
        "none": ColumnType(kind=Kind.STRING, source="text"),
    }
    schema = TableSchema(
        name=NAME,
        version=1,
        columns=tuple(Column(name=name, type=type_) for name, type_ in types.items()),
        primary_key=("id",),
    )
    row = pa.scalar(
        {"id": 1, "doc": '{"n": 1e400}', "broken": "{NaN", "tags": '["a", null]', "data": b"\x01", "none": None},
        schema.after_type,
    )
    assert row_json(schema, row) == (
        '{"id": 1, "doc": {"n": 1e400}, "broken": "{NaN", "tags": ["a", null], "data": "\\\\x01", "none": null}'
    )
    assert row_json(schema, pa.scalar(None, schema.after_type)) == "null"
