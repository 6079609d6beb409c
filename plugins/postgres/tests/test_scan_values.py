"""Scan and log have the same values, in both forms of the log. The whole package relies on that."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from cdc_rangefeed_postgres.scan_values import sql_texts
from cdc_rangefeed_postgres.types import binary_safe
from cdc_testing.logprobe import LogProbe
from cdc_testing.pgvalues import BINARY_MAKERS, TEXT_MAKERS

from cdc_core import Kind, TerminalRangefeedError


@pytest.mark.parametrize("seed", [1, 2])
def test_scan_and_log_in_both_forms_give_the_same_values(probe: LogProbe, seed: int) -> None:
    probe.fill("fast", BINARY_MAKERS, seed=seed)
    version = probe.version("fast")
    assert binary_safe(version.columns, version.types)
    scanned = probe.scan(version)
    probe.assert_log_is(scanned, binary=True)
    probe.assert_log_is(scanned, binary=False)


@pytest.mark.parametrize("seed", [3, 4])
def test_scan_and_log_give_the_same_values_of_types_that_are_only_read_as_text(probe: LogProbe, seed: int) -> None:
    probe.fill("slow", TEXT_MAKERS, seed=seed)
    version = probe.version("slow")
    for column in version.columns[1:]:
        assert not binary_safe([column], version.types), column
    probe.assert_log_is(probe.scan(version), binary=False)


@pytest.mark.parametrize("binary", [True, False])
def test_the_rows_before_an_update_have_the_values_of_the_scan(probe: LogProbe, *, binary: bool) -> None:
    makers = BINARY_MAKERS if binary else {**BINARY_MAKERS, **TEXT_MAKERS}
    probe.fill("old", makers, seed=8)
    probe.execute("ALTER TABLE old REPLICA IDENTITY FULL")
    probe.execute("CLUSTER old USING old_pkey")  # rows are updated in this order
    version = probe.version("old")
    scanned = probe.scan(version)
    probe.execute(f"UPDATE old SET {', '.join(f'c{index} = NULL' for index in range(len(makers)))}")
    probe.assert_log_is(scanned, binary=binary, column="before")


def test_all_other_types_are_the_text_that_postgresql_writes(probe: LogProbe) -> None:
    probe.fill("plain", {**BINARY_MAKERS, **TEXT_MAKERS}, seed=5)
    version = probe.version("plain")
    texts = {Kind.STRING, Kind.DECIMAL, Kind.UUID, Kind.JSON, Kind.ENUM, Kind.INTERVAL, Kind.TIMETZ}
    columns = [column.name for column in version.schema.columns if column.type.kind in texts]
    written = ", ".join(f"CASE WHEN {name} IS NOT NULL THEN format('%%s', {name}) END" for name in columns)
    rows = probe.execute(f"SELECT {written} FROM plain ORDER BY id", [])
    scanned = probe.scan(version, columns)
    for index, name in enumerate(columns):
        assert scanned.field(name).to_pylist() == [row[index] for row in rows], name


def test_arrays_and_composites_are_the_json_that_postgresql_would_write(probe: LogProbe) -> None:
    types = ["integer[]", "bool[]", "text[]", "uuid[]", "json[]", "mood[]", "int4range[]", "pair[]", "pair", "lone"]
    probe.fill("nested", {name: TEXT_MAKERS[name] for name in types}, seed=6)
    version = probe.version("nested")
    columns = [column.name for column in version.schema.columns[1:]]
    written = probe.execute(f"SELECT {', '.join(f'to_json({name})::text' for name in columns)} FROM nested ORDER BY id")
    scanned = probe.scan(version, columns)
    for index, name in enumerate(columns):
        ours = [None if text is None else json.loads(text) for text in scanned.field(name).to_pylist()]
        assert ours == [None if row[index] is None else json.loads(row[index]) for row in written], name


def test_the_error_for_a_timestamp_out_of_range_names_table_and_column(probe: LogProbe) -> None:
    probe.execute('CREATE TABLE late (id int PRIMARY KEY, "when" timestamptz)')
    probe.watch("late")
    probe.execute("INSERT INTO late VALUES (1, '294276-12-31 23:59:59+00')")
    expected = "table public.late, column 'when': changefeeds do not support a timestamp after the year 294246"
    for read in (
        lambda: probe.scan(probe.version("late")),
        lambda: probe.log(binary=True),
        lambda: probe.log(binary=False),
    ):
        with pytest.raises(TerminalRangefeedError, match=expected):
            read()


def test_a_users_cast_of_a_type_to_text_does_not_change_scanned_values(probe: LogProbe) -> None:
    probe.execute("CREATE TYPE span AS RANGE (subtype = integer)")
    probe.execute("CREATE FUNCTION shout(span) RETURNS text IMMUTABLE LANGUAGE SQL RETURN 'SPAN'")
    probe.execute("CREATE CAST (span AS text) WITH FUNCTION shout(span)")
    probe.execute("CREATE TABLE cast_away (id int PRIMARY KEY, s span)")
    probe.watch("cast_away")
    probe.execute("INSERT INTO cast_away VALUES (1, '[1,5)'), (2, NULL)")
    scanned = probe.scan(probe.version("cast_away"))
    assert scanned.field("s").to_pylist() == ["[1,5)", None]
    probe.assert_log_is(scanned, binary=False)


def test_an_empty_scan_has_the_right_type(probe: LogProbe) -> None:
    probe.execute('CREATE TABLE empty (id int PRIMARY KEY, "odd ""name""" timestamptz, n numeric, a int[])')
    version = probe.version("empty")
    scanned = probe.scan(version)
    assert len(scanned) == 0
    assert scanned.type == version.schema.after_type


def test_the_texts_of_keys_find_their_rows(probe: LogProbe) -> None:
    probe.fill("keys", {name: make for name, make in BINARY_MAKERS.items() if "json" not in name}, seed=7)
    version = probe.version("keys")
    scanned = probe.scan(version)
    for column in version.schema.columns:
        texts = sql_texts(scanned.field(column.name), column.type)
        same = f"k.{column.name} IS NOT DISTINCT FROM t.v::{column.type.source}"
        if column.type.kind is Kind.JSON:
            continue
        ((lost,),) = probe.execute(
            f"SELECT count(*) FROM keys k JOIN unnest(%s::text[]) WITH ORDINALITY t(v, n) ON k.id = t.n - 1"
            f" WHERE NOT ({same})",
            [texts],
        )
        assert lost == 0, column


def test_a_key_that_is_an_array_cannot_be_looked_up(probe: LogProbe) -> None:
    probe.execute("CREATE TABLE odd (id int[] PRIMARY KEY)")
    (column,) = probe.version("odd").schema.columns
    with pytest.raises(TerminalRangefeedError, match=r"key of type integer\[\]\. Run ALTER TABLE"):
        sql_texts(pa.array(["[1]"]), column.type)
