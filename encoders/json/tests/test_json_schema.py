from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from cdc_conformance.rows import INT8
from cdc_encoder_json.json_schema import allows_resolved, key_schema, resolved_schema, value_schema
from jsonschema import Draft7Validator

from cdc_core import Column, ColumnType, Envelope, Kind, TableName, TableSchema


def table(**types: ColumnType) -> TableSchema:
    columns = tuple(Column(name=name, type=type_) for name, type_ in types.items())
    return TableSchema(name=TableName("shop", "public", "orders"), version=1, columns=columns, primary_key=("id",))


def column_schema(type_: ColumnType) -> Draft7Validator:
    schema = json.loads(value_schema(table(id=INT8, c=type_), Envelope(name="row")) or "")
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema["properties"]["c"])


def of(kind: Kind, **more: Any) -> ColumnType:
    return ColumnType(kind=kind, source=str(kind), **more)


@pytest.mark.parametrize(
    ("type_", "wrong"),
    [
        (of(Kind.BOOL), [0, "true"]),
        (INT8, [1.5, "1", True]),
        (of(Kind.FLOAT), ["1", "nan", True]),
        (of(Kind.DECIMAL), ["1", "-NaN", []]),
        (of(Kind.STRING), [1, {}]),
        (of(Kind.BYTES), ["", "6162", "\\x6", "\\xAB", 1]),
        (of(Kind.UUID), ["09265ab7", "09265AB7-5F3A-40CB-A543-D37C8C893793"]),
        (of(Kind.DATE), ["2020-1-1", "Infinity", "20200101", "2020-01-01T00:00:00", 1]),
        (of(Kind.TIME), ["12:00", "12:00:00Z", "12:00:00.1234567"]),
        (of(Kind.TIMESTAMP), ["2020-01-01 00:00:00", "2020-01-01T00:00:00Z", "2020-01-01"]),
        (of(Kind.TIMESTAMPTZ), ["2020-01-01T00:00:00", "2020-01-01T00:00:00+00:00"]),
        (of(Kind.ENUM, labels=("red",)), [1]),
        (of(Kind.ARRAY, element=INT8), ["[]", ["1"], {}]),
        (of(Kind.ARRAY, element=of(Kind.DATE)), [["1"], [1]]),
        (of(Kind.COMPOSITE), [[], "{}"]),
    ],
)
def test_a_value_that_the_encoder_never_writes_is_invalid(type_: ColumnType, wrong: list[Any]) -> None:
    validator = column_schema(type_)
    assert validator.is_valid(None)
    assert [value for value in wrong if validator.is_valid(value)] == []


@pytest.mark.parametrize(
    ("type_", "right"),
    [
        (of(Kind.ENUM, labels=("red",)), ["red", "added later"]),
        (of(Kind.JSON), [None, 1, "", [], {"a": None}, True]),
        (of(Kind.ARRAY, element=INT8), [[], [1, None], [[1, None], [2, 3]], [[["1"]]]]),
        (of(Kind.ARRAY, element=of(Kind.JSON)), [[1, "a", {}, [None]]]),
        (of(Kind.ARRAY), [[1, "a"]]),
        (of(Kind.ARRAY, element=of(Kind.ARRAY, element=INT8)), [[], [None], [[1, None], [2, 3]]]),
        (of(Kind.DATE), ["-0043-03-15", "5874897-12-31", "-infinity"]),
        (of(Kind.DECIMAL), [1e300, "NaN", "-Infinity"]),
    ],
)
def test_unusual_values_that_the_encoder_writes_are_valid(type_: ColumnType, right: list[Any]) -> None:
    validator = column_schema(type_)
    assert [value for value in right if not validator.is_valid(value)] == []


def test_a_key_is_an_array_of_its_columns_without_nulls() -> None:
    schema = dataclasses.replace(table(id=INT8, name=of(Kind.STRING)), primary_key=("name", "id"))
    validator = Draft7Validator(json.loads(key_schema(schema, Envelope())))
    assert validator.is_valid(["a", 1])
    for wrong in ([], ["a"], [1, "a"], ["a", None], ["a", 1, 2], {"name": "a", "id": 1}):
        assert not validator.is_valid(wrong)


def test_only_known_members_are_allowed_and_none_is_required() -> None:
    for options in (Envelope(), Envelope(diff=True, updated=True), Envelope(name="bare")):
        validator = Draft7Validator(json.loads(value_schema(table(id=INT8), options) or ""))
        assert validator.is_valid({})
        assert not validator.is_valid({"other": None})
        assert not validator.is_valid(None)


def test_a_schema_allows_marks_and_only_options_that_are_set() -> None:
    for envelope in ("wrapped", "bare", "row"):
        schema = value_schema(table(id=INT8), Envelope(name=envelope)) or ""
        assert allows_resolved(schema, Envelope(name=envelope))
        assert allows_resolved(resolved_schema(Envelope(name=envelope)), Envelope(name=envelope))
        assert "updated" not in schema
    assert value_schema(table(id=INT8), Envelope(name="key_only")) is None


@pytest.mark.parametrize(
    "schema",
    [
        *("", "1", "true", "{}", "[]", '{"properties": 1}'),
        *('{"properties": {"__crdb__": {}}}', '{"properties": {"after": 1}}'),
    ],
)
def test_foreign_schemas_do_not_allow_marks(schema: str) -> None:
    for envelope in ("wrapped", "bare"):
        assert not allows_resolved(schema, Envelope(name=envelope))


def test_the_text_does_not_depend_on_the_order_of_columns_or_the_version() -> None:
    one, two = table(id=INT8, b=INT8, a=INT8), dataclasses.replace(table(a=INT8, id=INT8, b=INT8), version=9)
    for options in (Envelope(), Envelope(name="bare", updated=True)):
        assert value_schema(one, options) == value_schema(two, options)
    narrow = table(id=dataclasses.replace(INT8, source="integer", bits=32), b=INT8, a=INT8)
    assert key_schema(one, Envelope()) == key_schema(two, Envelope()) == key_schema(narrow, Envelope())


def test_descriptions_are_the_types_of_the_source() -> None:
    schema = json.loads(value_schema(table(id=INT8), Envelope()) or "")
    row = schema["properties"]["after"]["oneOf"][1]
    assert row["properties"]["id"]["description"] == "bigint"
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert schema["title"] == "orders_envelope"
