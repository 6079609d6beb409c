"""The encoder writes the same bytes as fastavro, which encodes one row at a time."""

from __future__ import annotations

import io
from collections.abc import Iterable
from decimal import Context, Decimal
from math import nan
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from cdc_column_texts import NoRepresentationError
from cdc_column_texts.binary import joined
from cdc_encoder_avro.encoder import AvroEncoder
from cdc_encoder_avro.names import avro_name
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.schemas import envelope_schema, key_schema
from cdc_encoder_avro.types import branches
from cdc_encoder_avro.values import value_pieces
from cdc_testing.drawn_columns import COLUMNS, ITEMS, SPECIAL_DECIMALS, column, drawn_batch, json_texts
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core import ColumnType, EncoderContext, Envelope, Kind, Timestamp


def oracle(type_: ColumnType, values: Iterable[Any], options: AvroOptions) -> list[bytes]:
    union = ["null", *branches(type_, options, enum_name="colours")]
    # inside a record, since fastavro takes Python's own types for logical ones there as anywhere
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": [{"name": "f", "type": union}]})
    return [written(schema, {"f": for_fastavro(type_, value)}) for value in values]


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def for_fastavro(type_: ColumnType, value: Any) -> Any:
    """Return *value* as in Arrow, but declared decimals as Decimal."""
    if isinstance(value, list) and type_.element is not None:
        return [for_fastavro(type_.element, item) for item in value]
    if type_.kind is Kind.DATE and isinstance(value, str):
        return "string", value  # or it would be taken for a date
    if type_.kind is not Kind.DECIMAL or type_.precision is None or value is None or value in SPECIAL_DECIMALS:
        return value
    return Decimal(value)


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_every_kind_is_written_as_fastavro_writes_it(name: str, data: st.DataObject) -> None:
    type_, strategy = COLUMNS[name]
    values = data.draw(st.lists(st.none() | strategy, max_size=8) | st.lists(strategy, max_size=8))
    options = AvroOptions(avro_enum=data.draw(st.sampled_from(["string", "enum"])), avro_special_values="string")
    array = pa.array([None, *values, None], type_.arrow).slice(1, len(values))
    assert encoded(array, type_, options) == oracle(type_, plain_values(array, values), options)


@pytest.mark.parametrize("name", ITEMS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_arrays_of_every_kind_are_written_as_fastavro_writes_them(name: str, data: st.DataObject) -> None:
    element, strategy = ITEMS[name]
    rows = data.draw(st.lists(st.none() | st.lists(st.none() | strategy, max_size=5), max_size=5))
    options = AvroOptions(avro_enum=data.draw(st.sampled_from(["string", "enum"])), avro_special_values="string")
    type_ = column(Kind.ARRAY, element=element)
    items = [None if row is None else pa.array(row, element.arrow) for row in rows]
    texts = [None if row is None else f"[{', '.join(json_texts(row, element))}]" for row in items]
    array = pa.array([None, *texts, None], pa.string()).slice(1, len(rows))
    values = [None if row is None else plain_values(row, rows[index]) for index, row in enumerate(items)]
    if element.kind is Kind.FLOAT:  # NaN is only NaN in JSON
        values = [row and [nan if item != item else item for item in row] for row in values]
    assert encoded(array, type_, options) == oracle(type_, values, options)


JSON_ITEMS = [
    ("[]", []),
    (" [ ] ", []),
    (
        '[null, "null", true, -1.50e3, {"a": [1, null, "]"]}]',
        [None, '"null"', "true", "-1.50e3", '{"a": [1, null, "]"]}'],
    ),
    ('[[1, [2]],\n [ ] ,"é, \\"]"]', ["[1, [2]]", "[ ]", '"é, \\"]"']),
    (None, None),
]


@pytest.mark.parametrize("kind", [Kind.JSON, Kind.COMPOSITE])
def test_json_items_keep_their_text(kind: Kind) -> None:
    type_ = column(Kind.ARRAY, element=column(kind))
    array = pa.array([text for text, _ in JSON_ITEMS], pa.string())
    assert encoded(array, type_, AvroOptions()) == oracle(type_, [items for _, items in JSON_ITEMS], AvroOptions())


class _Alone(AvroEncoder):
    """The encoder without a registry."""

    def _registered(self, subject: str, schema: str, *, aside: str | None = None) -> int:
        return 1 if subject.endswith("-key") else 2


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_whole_messages_are_written_as_fastavro_writes_them(data: st.DataObject) -> None:
    batch, rows = drawn_batch(data)
    schema = batch.schema
    types = {each.name: each.type for each in schema.columns}
    envelope = Envelope(diff=True, updated=True, key_in_value=True, topic_in_value=True)
    options = AvroOptions(
        confluent_schema_registry="http://nowhere.invalid", avro_schema_prefix="a.", avro_special_values="string"
    )
    encoder = _Alone(EncoderContext(changefeed="c", envelope=envelope, options=options))
    found = encoder.encode(batch, topic="t")
    key_format = fastavro.parse_schema(key_schema(schema, options))
    value_format = fastavro.parse_schema(
        envelope_schema(schema, "t", envelope=envelope, options=options, resolved=True)
    )

    def record(image: dict[str, Any] | None) -> dict[str, Any] | None:
        if image is None:
            return None
        return {avro_name(name): for_fastavro(types[name], value) for name, value in image.items()}

    for index, (key, after, before, wall, logical) in enumerate(rows):
        value = {
            "before": record(before),
            "after": record(after),
            "updated": str(Timestamp(wall, logical)),
            "key": record(key),
            "topic": "t",
        }
        assert found.key[index].as_py() == b"\0\0\0\0\1" + written(key_format, record(key))
        assert found.value[index].as_py() == b"\0\0\0\0\2" + written(value_format, value)


SPECIAL: list[tuple[ColumnType, Any, Any, str]] = [
    *[(column(kind), 1, 2**63 - 1, "infinity") for kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ)],
    *[(column(kind), 1, -(2**63), "-infinity") for kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ)],
    (column(Kind.DATE), 1, 2**31 - 1, "infinity"),
    (column(Kind.DATE), 1, -(2**31), "-infinity"),
    (column(Kind.TIME), 1, 86_400_000_000, "24:00:00"),
    *[
        (column(Kind.DECIMAL, precision=precision, scale=2), "1.50", text, text)
        for precision in (10, 38, 100)
        for text in SPECIAL_DECIMALS
    ],
]
"""Types with a value, a value that Avro does not have, and its text."""


@pytest.mark.parametrize(("type_", "plain", "value", "text"), SPECIAL)
def test_special_values_are_refused_or_written_as_text(type_: ColumnType, plain: Any, value: Any, text: str) -> None:
    array = pa.array([None, plain, value, plain, value, None], type_.arrow)
    with pytest.raises(NoRepresentationError, match=f"no '{text}'; set avro_special_values = 'string'") as error:
        encoded(array, type_, AvroOptions())
    assert error.value.row == 2
    options = AvroOptions(avro_special_values="string")
    values = [None, plain, text, plain, text, None]
    assert encoded(array, type_, options) == oracle(type_, values, options)


@pytest.mark.parametrize(("element", "plain", "value", "text"), SPECIAL)
def test_special_items_are_refused_or_written_as_text(element: ColumnType, plain: Any, value: Any, text: str) -> None:
    type_ = column(Kind.ARRAY, element=element)
    first, second = (json_texts(pa.array([one], element.arrow), element)[0] for one in (plain, value))
    array = pa.array([f"[{first}]", None, "[]", f"[{first}, {second}, null, {first}]"], pa.string())
    with pytest.raises(NoRepresentationError, match=f"no '{text}'") as error:
        encoded(array, type_, AvroOptions())
    assert error.value.row == 3
    options = AvroOptions(avro_special_values="string")
    values = [[plain], None, [], [plain, text, None, plain]]
    assert encoded(array, type_, options) == oracle(type_, values, options)


@pytest.mark.parametrize("name", [name for name in COLUMNS if name.startswith("decimal(")])
def test_a_decimal_is_a_union_of_null_and_decimal_alone(name: str) -> None:
    type_ = COLUMNS[name][0]
    (decimal,) = branches(type_, AvroOptions(), enum_name="e")
    assert decimal["logicalType"] == "decimal"
    zero = f"{Decimal(0).scaleb(-max(type_.scale or 0, 0), Context(prec=2000)):f}"
    array = pa.array([zero, None], pa.string())
    assert encoded(array, type_, AvroOptions()) == oracle(type_, (zero, None), AvroOptions())


def test_arrays_of_several_dimensions_are_refused_or_written_as_json() -> None:
    type_ = column(Kind.ARRAY, element=column(Kind.INT))
    array = pa.array(["[1]", None, "[[1, 2], [3, 4]]"])
    with pytest.raises(NoRepresentationError, match="several dimensions; set avro_arrays = 'json'") as error:
        encoded(array, type_, AvroOptions())
    assert error.value.row == 2
    options = AvroOptions(avro_arrays="json")
    assert encoded(array, type_, options) == oracle(type_, array.to_pylist(), options)


def test_a_label_that_is_not_in_the_schema_is_refused() -> None:
    type_ = column(Kind.ENUM, labels=("red", "green"))
    array = pa.array(["red", None, "blue"])
    with pytest.raises(NoRepresentationError, match=r"'blue' is not a label.*avro_enum = 'string'") as error:
        encoded(array, type_, AvroOptions(avro_enum="enum"))
    assert error.value.row == 2


def encoded(array: pa.Array, type_: ColumnType, options: AvroOptions) -> list[bytes]:
    found: list[bytes] = joined(value_pieces(array, type_, options), len(array)).to_pylist()
    return found


def plain_values(array: pa.Array, values: list[Any]) -> list[Any]:
    """Return what a loop over rows would write; NaN keeps the bits that it has in Arrow."""
    return array.to_pylist() if pa.types.is_floating(array.type) else values
