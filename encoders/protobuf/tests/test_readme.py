"""The published file, the fields that the code knows and the documentation are the same."""

from __future__ import annotations

from pathlib import Path

from cdc_encoder_protobuf.descriptors import FILE, file_descriptor
from cdc_encoder_protobuf.options import ProtobufOptions
from cdc_encoder_protobuf.values import field_name
from cdc_testing.published_proto import PROTO, compiled

from cdc_core import ColumnType, Kind

README = Path(__file__).parents[1] / "README.md"
ELEMENT = ColumnType(kind=Kind.INT, source="")
MESSAGES = {"timestamp_value": "`google.protobuf.Timestamp`", "array_value": "of `Value`", "decimal_value": "`Decimal`"}


def cell(kind: Kind) -> str:
    type_ = ColumnType(kind=kind, source="", element=ELEMENT if kind is Kind.ARRAY else None)
    name = field_name(type_, ProtobufOptions())
    text = f"`{name}`, {MESSAGES[name]}" if name in MESSAGES else f"`{name}`"
    other = field_name(type_, ProtobufOptions(protobuf_arrays="json"))
    return text if other == name else f'{text}; with `protobuf_arrays = "json"` `{other}`'


def test_the_types_table_matches_the_encoder() -> None:
    table = "\n".join(["| kind | field of `Value` |", "|---|---|", *(f"| {kind} | {cell(kind)} |" for kind in Kind)])
    assert f"<!-- types: begin -->\n{table}\n<!-- types: end -->" in README.read_text(encoding="utf-8"), table


def test_the_readme_has_the_published_file() -> None:
    assert f"```protobuf\n{PROTO.read_text(encoding='utf-8')}```" in README.read_text(encoding="utf-8")


def test_the_fields_that_the_code_knows_are_those_of_the_published_file() -> None:
    published = compiled().file[-1]
    for message in published.message_type:
        del message.reserved_range[:]
        for field in (*message.field, *(each for nested in message.nested_type for each in nested.field)):
            field.ClearField("json_name")
    known = file_descriptor()
    assert known.name == FILE
    known.name = published.name
    assert known == published
