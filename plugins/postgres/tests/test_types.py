from __future__ import annotations

import pickle

import pytest
from cdc_rangefeed_postgres.types import PgColumn, TableVersion, TypeCatalog, TypeInfo, binary_safe, column_type
from cdc_testing.logprobe import LogProbe

from cdc_core import Column, ColumnType, Kind, TableName, TableSchema

_ENUM = TypeInfo(oid=90_001, name="mood", typtype="e", labels=("sad", "ok"))
_PRICE = TypeInfo(oid=90_002, name="price", typtype="d", base=1700, typmod=(10 << 16 | 2) + 4)
_DEAR = TypeInfo(oid=90_003, name="dear_price", typtype="d", base=90_002)
_PAIR = TypeInfo(oid=90_004, name="pair", typtype="c", fields=(("x", 23, -1), ("m", 90_001, -1)))
_MOODS = TypeInfo(oid=90_005, name="mood[]", typtype="b", element=90_001)
_CATALOG = TypeCatalog({info.oid: info for info in (_ENUM, _PRICE, _DEAR, _PAIR, _MOODS)})
_MODIFIED = [
    "numeric", "numeric(10,2)", "numeric(5,-2)", "numeric(3,5)", "character varying(20)", "character varying", "bpchar",
    "character(5)", "bit(3)", "bit varying(7)", "bit varying", "time(3) without time zone", "time without time zone",
    "time(0) with time zone", "timestamp(3) with time zone", "timestamp without time zone", "interval", "interval(2)",
    "interval year to month", "interval day to second(3)", "interval hour to minute", "integer[]", "numeric(4,1)[]",
    "timestamp(1) with time zone[]", "character varying(3)[]", '"char"', "double precision", "money", "tsvector",
]  # fmt: skip


def _type(oid: int, typmod: int = -1) -> ColumnType:
    return column_type(PgColumn("c", oid, typmod), _CATALOG)


def test_source_texts_are_those_of_the_server(database: str) -> None:
    with LogProbe(database) as probe:
        probe.execute(f"CREATE TABLE t ({', '.join(f'c{number} {name}' for number, name in enumerate(_MODIFIED))})")
        version = probe.version("t", key=("c0",))
        assert [column.type.source for column in version.schema.columns] == _MODIFIED


def test_builtin_types_agree_with_the_server(database: str) -> None:
    with LogProbe(database) as probe:
        rows = probe.execute(
            "SELECT t.oid, format_type(t.oid, NULL), a.oid FROM pg_type t JOIN pg_type a ON a.oid = t.typarray"
            " WHERE t.typtype IN ('b', 'r', 'm') AND t.typnamespace = 'pg_catalog'::regnamespace"
        )
    known = [(oid, name, array) for oid, name, array in rows if oid in TypeCatalog()]
    assert len(known) > 60
    for oid, name, array in known:
        assert TypeCatalog()[oid].name == name
        assert TypeCatalog()[array].element == oid


def test_precision_and_scale_come_from_the_modifiers() -> None:
    type_ = _type(1700, (10 << 16 | 2) + 4)
    assert (type_.kind, type_.precision, type_.scale) == (Kind.DECIMAL, 10, 2)
    negative = _type(1700, (5 << 16 | (-2 & 0x7FF)) + 4)
    assert (negative.precision, negative.scale) == (5, -2)
    assert _type(1184, 3).precision == 3
    assert _type(1700).precision is None


def test_a_domain_has_its_own_name_and_its_base_types_kind() -> None:
    type_ = _type(_DEAR.oid)
    assert (type_.source, type_.kind, type_.precision, type_.scale) == ("dear_price", Kind.DECIMAL, 10, 2)


def test_an_enum_has_its_labels() -> None:
    assert _type(_ENUM.oid).labels == ("sad", "ok")


def test_an_array_has_its_element() -> None:
    type_ = _type(_MOODS.oid)
    assert (type_.kind, type_.source) == (Kind.ARRAY, "mood[]")
    assert type_.element == _type(_ENUM.oid)


def test_an_unknown_type_is_a_string() -> None:
    catalog = TypeCatalog({7_777: TypeInfo(oid=7_777, name="geometry", typtype="b")})
    type_ = column_type(PgColumn("g", 7_777), catalog)
    assert (type_.kind, type_.source) == (Kind.STRING, "geometry")


def test_a_catalog_names_missing_types_and_those_inside_others() -> None:
    assert TypeCatalog().unknown([23, 1007, _PAIR.oid]) == {_PAIR.oid}
    assert TypeCatalog({_PAIR.oid: _PAIR}).unknown([_PAIR.oid]) == {_ENUM.oid}
    assert _CATALOG.unknown([_PAIR.oid, _DEAR.oid, _MOODS.oid]) == set()


@pytest.mark.parametrize("oid", [16, 20, 25, 1700, 2950, 3802, 1184, _ENUM.oid, _DEAR.oid])
def test_the_binary_form_is_used_for_types_with_a_binary_decoder(oid: int) -> None:
    assert binary_safe([PgColumn("id", 20), PgColumn("c", oid)], _CATALOG)


@pytest.mark.parametrize("oid", [18, 142, 869, 1186, 1266, 1007, 2205, _PAIR.oid, _MOODS.oid])
def test_one_other_type_means_the_text_form_for_the_whole_table(oid: int) -> None:
    assert not binary_safe([PgColumn("id", 20), PgColumn("c", oid)], _CATALOG)


def test_a_version_survives_pickle() -> None:
    columns = (PgColumn("id", 20, -1, True), PgColumn("p", _PAIR.oid), PgColumn("m", _MOODS.oid))
    schema = TableSchema(
        name=TableName("d", "public", "t"),
        version=3,
        columns=tuple(Column(name=column.name, type=column_type(column, _CATALOG)) for column in columns),
        primary_key=("id",),
    )
    version = TableVersion(schema, columns, _CATALOG)
    assert pickle.loads(pickle.dumps(version)) == version


def test_a_version_refuses_columns_that_differ_from_its_schema() -> None:
    schema = TableSchema(name=TableName("d", "public", "t"), version=1, columns=(), primary_key=())
    with pytest.raises(ValueError, match="do not match"):
        TableVersion(schema, (PgColumn("id", 20),))
