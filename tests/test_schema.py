"""Table schemas: Arrow types, lookup, JSON."""

import json
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core import Column, ColumnType, Kind, TableName, TableSchema

SCHEMA = TableSchema(
    name=TableName("shop", "public", "orders"),
    version=3,
    columns=(
        Column(name="note", type=ColumnType(kind=Kind.STRING, source="text")),
        Column(name="b", type=ColumnType(kind=Kind.INT, source="integer", bits=32), nullable=False),
        Column(name="a", type=ColumnType(kind=Kind.UUID, source="uuid"), nullable=False),
        Column(name="price", type=ColumnType(kind=Kind.DECIMAL, source="numeric(10,2)", precision=10, scale=2)),
        Column(
            name="tags",
            type=ColumnType(
                kind=Kind.ARRAY,
                source="mood[]",
                element=ColumnType(kind=Kind.ENUM, source="mood", labels=("ok", "sad")),
            ),
        ),
    ),
    primary_key=("a", "b"),
)


def test_json_and_back_is_the_same_schema() -> None:
    assert TableSchema.from_json(json.loads(json.dumps(SCHEMA.to_json()))) == SCHEMA


def test_a_schema_survives_pickling_with_its_cached_types() -> None:
    assert SCHEMA.after_type.num_fields == 5
    assert pickle.loads(pickle.dumps(SCHEMA)) == SCHEMA


def test_key_type_is_in_key_order_and_after_type_in_table_order() -> None:
    assert SCHEMA.key_type == pa.struct([("a", pa.string()), ("b", pa.int32())])
    assert [field.name for field in SCHEMA.after_type] == ["note", "b", "a", "price", "tags"]


def test_an_unknown_column_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="missing"):
        SCHEMA.column("missing")


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_has_an_arrow_type(kind: Kind) -> None:
    assert isinstance(ColumnType(kind=kind, source="x").arrow, pa.DataType)


@pytest.mark.parametrize(
    ("kind", "bits", "arrow"),
    [
        (Kind.INT, 16, pa.int16()),
        (Kind.INT, 64, pa.int64()),
        (Kind.INT, None, pa.int64()),
        (Kind.FLOAT, 32, pa.float32()),
        (Kind.FLOAT, None, pa.float64()),
        (Kind.TIMESTAMPTZ, None, pa.timestamp("us", "UTC")),
        (Kind.DECIMAL, None, pa.string()),
    ],
)
def test_numbers_take_their_width_and_decimals_stay_text(kind: Kind, bits: int | None, arrow: pa.DataType) -> None:
    assert ColumnType(kind=kind, source="x", bits=bits).arrow == arrow


NAMES = st.builds(TableName, *[st.text('ab."', min_size=1, max_size=4)] * 3)


@given(NAMES, NAMES)
def test_two_tables_never_have_one_text(one: TableName, other: TableName) -> None:
    assert (one.full == other.full) == (one == other)
    assert (one.qualified == other.qualified) == ((one.schema, one.table) == (other.schema, other.table))
    assert TableName.parse(one.full) == TableName.parse(one.qualified, database=one.database) == one


def test_only_a_schema_or_a_database_with_a_dot_is_in_quotes() -> None:
    assert TableName("my shop", "Pub-lic", 'or."ders').full == 'my shop.Pub-lic.or."ders'
    assert TableName("shop.eu", 'a."b', "c").full == '"shop.eu"."a.""b".c'


def test_table_names_have_a_full_and_a_qualified_form() -> None:
    name = TableName("shop", "public", "orders")
    assert (name.full, name.qualified, str(name)) == ("shop.public.orders", "public.orders", "public.orders")
