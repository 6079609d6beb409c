from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest
from cdc_conformance.rows import INT8
from cdc_encoder_avro.names import sql_name
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.schemas import envelope_schema, key_schema, resolved_schema, schema_text

from cdc_core import SOURCE_MEMBERS, Column, ColumnType, Envelope, Kind, TableName, TableSchema

TEXT = ColumnType(kind=Kind.STRING, source="character varying(5)")
COLOUR = ColumnType(kind=Kind.ENUM, source="colour", labels=("red", "green"))
EVERYTHING = Envelope(diff=True, updated=True, mvcc_timestamp=True, key_in_value=True, topic_in_value=True)


def table(columns: dict[str, ColumnType], *, name: str = "foo", key: tuple[str, ...] = ("a",)) -> TableSchema:
    return TableSchema(
        name=TableName("shop", "public", name),
        version=1,
        columns=tuple(Column(name=name, type=type_) for name, type_ in columns.items()),
        primary_key=key,
    )


def union(type_: Any, **more: Any) -> dict[str, Any]:
    return {"type": ["null", type_], "default": None, **more}


FOO = table({"a": INT8, "b": TEXT})
A = {"name": "a", **union("long", __crdb__="a bigint")}
B = {"name": "b", **union("string", __crdb__="b character varying(5)")}
KEY_A = {"name": "a", **union("long")}
KEY_B = {"name": "b", **union("string")}


def test_the_key_is_a_record_of_the_primary_key_in_key_order() -> None:
    schema = table({"a": INT8, "c": INT8, "b": TEXT}, key=("b", "a"))
    assert key_schema(schema, AvroOptions()) == {"type": "record", "name": "foo", "fields": [KEY_B, KEY_A]}


def test_the_envelope_has_its_fields_in_a_fixed_order() -> None:
    found = envelope_schema(FOO, "foo", envelope=EVERYTHING, options=AvroOptions(), resolved=True)
    assert found == {
        "type": "record",
        "name": "foo_envelope",
        "fields": [
            {"name": "before", **union({"type": "record", "name": "foo_before", "fields": [A, B]})},
            {"name": "after", **union({"type": "record", "name": "foo", "fields": [A, B]})},
            {"name": "updated", **union("string")},
            {"name": "mvcc_timestamp", **union("string")},
            {"name": "resolved", **union("string")},
            {"name": "key", **union({"type": "record", "name": "foo_key", "fields": [KEY_A]})},
            {"name": "topic", **union("string")},
        ],
    }


def test_an_enriched_envelope_has_the_source_the_time_and_the_operation() -> None:
    envelope = Envelope(
        name="enriched", enriched_properties=("source",), updated=True, mvcc_timestamp=True, key_in_value=True
    )
    options = AvroOptions(avro_schema_prefix="super.")
    found = envelope_schema(FOO, "foo", envelope=envelope, options=options, resolved=True)
    names = [field["name"] for field in found["fields"]]
    assert names == ["after", "resolved", "source", "ts_ns", "op", "key"]
    (source, time, operation) = found["fields"][2:5]
    assert (time, operation) == ({"name": "ts_ns", **union("long")}, {"name": "op", **union("string")})
    record = source["type"][1]
    assert (record["name"], record["namespace"], source["default"]) == ("source", "super", None)
    names = sorted([*SOURCE_MEMBERS, "mvcc_timestamp", "ts_hlc", "ts_ns"])
    types: dict[str, Any] = dict.fromkeys(names, "string")
    types |= {"primary_keys": {"type": "array", "items": "string"}, "ts_ns": "long"}
    assert record["fields"] == [{"name": name, **union(type_)} for name, type_ in types.items()]


def test_a_table_may_be_called_as_the_record_of_the_source() -> None:
    envelope = Envelope(name="enriched", enriched_properties=("source",), key_in_value=True)
    schema = table({"a": INT8, "b": TEXT}, name="source")
    found = envelope_schema(schema, "source", envelope=envelope, options=AvroOptions(), resolved=True)
    fastavro.parse_schema(found)
    records = {field["name"]: field["type"][1]["name"] for field in found["fields"] if "fields" in field["type"][1]}
    assert records == {"after": "source", "source": "source_source", "key": "source_key"}


def test_a_bare_envelope_has_the_field_record_instead_of_after() -> None:
    bare = Envelope(name="bare", updated=True)
    found = envelope_schema(FOO, "foo", envelope=bare, options=AvroOptions(), resolved=True)
    assert [field["name"] for field in found["fields"]] == ["updated", "resolved", "record"]
    assert found["fields"][-1] == {"name": "record", **union({"type": "record", "name": "foo", "fields": [A, B]})}


def test_a_resolved_mark_has_the_name_of_the_envelope_and_one_field() -> None:
    options = AvroOptions(avro_schema_prefix="super.")
    found = resolved_schema("pre_foo", options)
    assert found == {
        "type": "record",
        "name": "pre_foo_envelope",
        "namespace": "super",
        "fields": [{"name": "resolved", **union("string")}],
    }
    envelope = envelope_schema(FOO, "pre_foo", envelope=EVERYTHING, options=options, resolved=True)
    assert (envelope["name"], envelope["namespace"]) == (found["name"], found["namespace"])


def test_escaped_names_are_accompanied_by_the_original() -> None:
    schema = table({"größe": INT8}, name="my table", key=("größe",))
    found = envelope_schema(schema, "t", envelope=Envelope(), options=AvroOptions(), resolved=False)
    record = found["fields"][0]["type"][1]
    assert (record["name"], record["sql_name"]) == ("my_u0020_table", "my table")
    assert record["fields"] == [
        {"name": "gr_u00f6__u00df_e", **union("long", __crdb__='"größe" bigint', sql_name="größe")}
    ]


@pytest.mark.parametrize("name", ["boolean", "bytes", "double", "float", "int", "long", "null", "string"])
def test_a_table_may_be_called_as_a_type_of_avro(name: str) -> None:
    found = key_schema(table({"string": INT8}, name=name, key=("string",)), AvroOptions())
    assert (sql_name(found["name"]), found["sql_name"], found["fields"][0]["name"]) == (name, name, "string")
    assert found["name"] != name


@pytest.mark.parametrize(
    ("labels", "written"), [(("red", "green"), True), (("red", "light green"), False), (("", "a"), False), ((), False)]
)
def test_an_enum_is_an_avro_enum_if_all_its_labels_are_names(labels: tuple[str, ...], *, written: bool) -> None:
    type_ = ColumnType(kind=Kind.ENUM, source="colour", labels=labels)
    (field,) = key_schema(table({"a": type_}), AvroOptions(avro_enum="enum"))["fields"]
    expected = {"type": "enum", "name": "foo_a_enum", "symbols": list(labels)} if written else "string"
    assert field["type"] == ["null", expected]
    (field,) = key_schema(table({"a": type_}), AvroOptions())["fields"]
    assert field["type"] == ["null", "string"]


def test_a_named_type_is_defined_once() -> None:
    columns = {"a": COLOUR, "b": ColumnType(kind=Kind.ARRAY, source="colour[]", element=COLOUR)}
    options = AvroOptions(avro_enum="enum", avro_schema_prefix="ns")
    found = envelope_schema(table(columns), "foo", envelope=EVERYTHING, options=options, resolved=True)
    fastavro.parse_schema(json.loads(schema_text(found)))
    before, after = (found["fields"][index]["type"][1]["fields"] for index in (0, 1))
    enum = {"type": "enum", "name": "foo_a_enum", "symbols": ["red", "green"]}
    items = {"type": "enum", "name": "foo_b_enum", "symbols": ["red", "green"]}
    assert [field["type"][1] for field in before] == [enum, {"type": "array", "items": ["null", items]}]
    assert [field["type"][1] for field in after] == ["foo_a_enum", {"type": "array", "items": ["null", "foo_b_enum"]}]


def test_a_schema_always_has_the_same_text() -> None:
    found = envelope_schema(FOO, "foo", envelope=EVERYTHING, options=AvroOptions(), resolved=True)
    again = envelope_schema(FOO, "foo", envelope=EVERYTHING, options=AvroOptions(), resolved=True)
    assert schema_text(found) == schema_text(again)
    assert json.loads(schema_text(found)) == found
