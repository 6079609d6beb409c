"""What the encoder writes is, byte for byte, what fastavro writes row by row."""

from __future__ import annotations

import io
from collections.abc import Mapping
from decimal import Context, Decimal
from math import nan
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa
import pytest
from cdc_encoder_avro.errors import NoRepresentationError
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.pieces import joined
from cdc_encoder_avro.types import branches
from cdc_encoder_avro.values import value_pieces
from cdc_encoder_json.pieces import joined as json_joined
from cdc_encoder_json.values import value_pieces as json_pieces
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core import ColumnType, Kind

SPECIAL_DECIMALS = ("NaN", "Infinity", "-Infinity")
I64 = st.integers(-(2**63), 2**63 - 1)
EDGES = st.sampled_from([sign * (1 << bits) + add for bits in range(63) for sign in (1, -1) for add in (-1, 0, 1)])
TEXT = st.text(max_size=20).filter(lambda text: "\x00" not in text) | st.sampled_from(
    ["", "é", "😀", "x" * 200, "y" * 9000]
)


def moments(limit: int) -> st.SearchStrategy[int]:
    return st.integers(-(2**limit) + 1, 2**limit - 2)


def decimals(precision: int, scale: int) -> st.SearchStrategy[str]:
    top = 10**precision - 1
    edges = [s * (1 << b) + a for b in range(top.bit_length()) for s in (1, -1) for a in (-1, 0, 1)]
    numbers = st.integers(-top, top) | st.sampled_from([n for n in edges if abs(n) <= top])
    texts = numbers.map(lambda number: f"{Decimal(number).scaleb(-scale, Context(prec=2000)):f}")
    return texts | st.sampled_from(SPECIAL_DECIMALS)


def column(kind: Kind, **more: Any) -> ColumnType:
    return ColumnType(kind=kind, source=str(kind), **more)


COLUMNS: Mapping[str, tuple[ColumnType, st.SearchStrategy[Any]]] = {
    "bool": (column(Kind.BOOL), st.booleans()),
    "int2": (column(Kind.INT, bits=16), st.integers(-(2**15), 2**15 - 1)),
    "int4": (column(Kind.INT, bits=32), st.integers(-(2**31), 2**31 - 1)),
    "int8": (column(Kind.INT, bits=64), I64 | EDGES),
    "small int8": (column(Kind.INT, bits=64), st.integers(-8192, 8191)),
    "float4": (column(Kind.FLOAT, bits=32), st.floats(width=32)),
    "float8": (column(Kind.FLOAT, bits=64), st.floats()),
    "string": (column(Kind.STRING), TEXT),
    "bytes": (column(Kind.BYTES), st.binary(max_size=20)),
    "uuid": (column(Kind.UUID), st.uuids().map(str)),
    "date": (column(Kind.DATE), moments(31)),
    "time": (column(Kind.TIME), st.integers(0, 86_400_000_000 - 1)),
    "timetz": (column(Kind.TIMETZ), TEXT),
    "timestamp": (column(Kind.TIMESTAMP), moments(63)),
    "timestamptz": (column(Kind.TIMESTAMPTZ), moments(63)),
    "interval": (column(Kind.INTERVAL), TEXT),
    "json": (column(Kind.JSON), TEXT),
    "composite": (column(Kind.COMPOSITE), TEXT),
    "enum": (column(Kind.ENUM, labels=("red", "green", "blue")), st.sampled_from(["red", "green", "blue"])),
    "decimal": (column(Kind.DECIMAL), decimals(30, 5)),
    **{
        f"decimal({precision},{scale})": (column(Kind.DECIMAL, precision=precision, scale=scale), decimals(p, s))
        for precision, scale, p, s in [
            (1, 0, 1, 0), (4, 2, 4, 2), (10, 2, 10, 2), (18, 0, 18, 0), (18, 18, 18, 18), (19, 4, 19, 4),
            (38, 10, 38, 10), (39, 0, 39, 0), (76, 30, 76, 30), (77, 1, 77, 1), (400, 200, 400, 200),
            (3, -2, 3, -2), (2, 4, 2, 4),
        ]
    },
}  # fmt: skip


def oracle(type_: ColumnType, value: Any, options: AvroOptions) -> bytes:
    union = ["null", *branches(type_, options, enum_name="colours")]
    # inside a record, since fastavro takes Python's own types for logical ones there as anywhere
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": [{"name": "f", "type": union}]})
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"f": for_fastavro(type_, value)})
    return out.getvalue()


def for_fastavro(type_: ColumnType, value: Any) -> Any:
    """Return *value* with declared decimals as Decimal; all else is as in Arrow."""
    if isinstance(value, list) and type_.element is not None:
        return [for_fastavro(type_.element, item) for item in value]
    if type_.kind is Kind.DATE and isinstance(value, str):
        return "string", value  # or it would be taken for a date
    if type_.kind is not Kind.DECIMAL or type_.precision is None or value is None or value in SPECIAL_DECIMALS:
        return value
    return Decimal(value)


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_kind_is_written_as_fastavro_writes_it(name: str, data: st.DataObject) -> None:
    type_, strategy = COLUMNS[name]
    values = data.draw(st.lists(st.none() | strategy, max_size=8) | st.lists(strategy, max_size=8))
    options = AvroOptions(avro_enum=data.draw(st.sampled_from(["string", "enum"])))
    array = pa.array([None, *values, None], type_.arrow).slice(1, len(values))
    assert encoded(array, type_, options) == [oracle(type_, value, options) for value in plain_values(array, values)]


ITEMS = {name: COLUMNS[name] for name in COLUMNS if COLUMNS[name][0].kind not in (Kind.JSON, Kind.COMPOSITE)}


@pytest.mark.parametrize("name", ITEMS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_arrays_of_every_kind_are_written_as_fastavro_writes_them(name: str, data: st.DataObject) -> None:
    element, strategy = ITEMS[name]
    rows = data.draw(st.lists(st.none() | st.lists(st.none() | strategy, max_size=5), max_size=5))
    options = AvroOptions(avro_enum=data.draw(st.sampled_from(["string", "enum"])))
    type_ = column(Kind.ARRAY, element=element)
    items = [None if row is None else pa.array(row, element.arrow) for row in rows]
    texts = [None if row is None else f"[{', '.join(json_texts(row, element))}]" for row in items]
    array = pa.array([None, *texts, None], pa.string()).slice(1, len(rows))
    values = [None if row is None else plain_values(row, rows[index]) for index, row in enumerate(items)]
    if element.kind is Kind.FLOAT:  # NaN is only NaN in JSON
        values = [row and [nan if item != item else item for item in row] for row in values]
    assert encoded(array, type_, options) == [oracle(type_, value, options) for value in values]


def json_texts(items: pa.Array, element: ColumnType) -> list[str]:
    """Return items as the sources write them into JSON arrays, which is as the JSON encoder writes columns."""
    return [text.decode() for text in json_joined(json_pieces(items, element), len(items)).cast(pl.Binary)]


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
def test_items_that_are_json_keep_their_text(kind: Kind) -> None:
    type_ = column(Kind.ARRAY, element=column(kind))
    array = pa.array([text for text, _ in JSON_ITEMS], pa.string())
    assert encoded(array, type_, AvroOptions()) == [oracle(type_, items, AvroOptions()) for _, items in JSON_ITEMS]


SPECIAL: list[tuple[Kind, Any, str]] = [
    *[(kind, 2**63 - 1, "infinity") for kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ)],
    *[(kind, -(2**63), "-infinity") for kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ)],
    (Kind.DATE, 2**31 - 1, "infinity"),
    (Kind.DATE, -(2**31), "-infinity"),
    (Kind.TIME, 86_400_000_000, "24:00:00"),
]


@pytest.mark.parametrize(("kind", "value", "text"), SPECIAL)
def test_special_values_are_refused_or_written_as_text(kind: Kind, value: int, text: str) -> None:
    type_ = column(kind)
    array = pa.array([None, 1, value, 1, value, None], type_.arrow)
    with pytest.raises(NoRepresentationError, match=f"no '{text}'; set avro_special_values = 'string'") as error:
        encoded(array, type_, AvroOptions())
    assert error.value.row == 2
    options = AvroOptions(avro_special_values="string")
    values = [None, 1, text, 1, text, None]
    assert encoded(array, type_, options) == [oracle(type_, value, options) for value in values]


@pytest.mark.parametrize(("kind", "value", "text"), SPECIAL)
def test_special_items_are_refused_or_written_as_text(kind: Kind, value: int, text: str) -> None:
    type_ = column(Kind.ARRAY, element=column(kind))
    first, second = (json_texts(pa.array([one], column(kind).arrow), column(kind))[0] for one in (1, value))
    array = pa.array([f"[{first}]", None, "[]", f"[{first}, {second}, null, {first}]"], pa.string())
    with pytest.raises(NoRepresentationError, match=f"no '{text}'") as error:
        encoded(array, type_, AvroOptions())
    assert error.value.row == 3
    options = AvroOptions(avro_special_values="string")
    values = [[1], None, [], [1, text, None, 1]]
    assert encoded(array, type_, options) == [oracle(type_, value, options) for value in values]


def test_arrays_of_several_dimensions_are_refused_or_written_as_json() -> None:
    type_ = column(Kind.ARRAY, element=column(Kind.INT))
    array = pa.array(["[1]", None, "[[1, 2], [3, 4]]"])
    with pytest.raises(NoRepresentationError, match="several dimensions; set avro_arrays = 'json'") as error:
        encoded(array, type_, AvroOptions())
    assert error.value.row == 2
    options = AvroOptions(avro_arrays="json")
    assert encoded(array, type_, options) == [oracle(type_, text, options) for text in array.to_pylist()]


def test_a_label_that_the_schema_lacks_is_refused() -> None:
    type_ = column(Kind.ENUM, labels=("red", "green"))
    array = pa.array(["red", None, "blue"])
    with pytest.raises(NoRepresentationError, match=r"'blue' is no label.*avro_enum = 'string'") as error:
        encoded(array, type_, AvroOptions(avro_enum="enum"))
    assert error.value.row == 2


def encoded(array: pa.Array, type_: ColumnType, options: AvroOptions) -> list[bytes]:
    found: list[bytes] = joined(value_pieces(array, type_, options), len(array)).to_pylist()
    return found


def plain_values(array: pa.Array, values: list[Any]) -> list[Any]:
    """Return what a loop over rows would write; NaN keeps the bits that it has in Arrow."""
    return array.to_pylist() if pa.types.is_floating(array.type) else values
