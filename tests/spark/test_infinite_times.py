"""Expressions of dates and timestamps that are infinite, or too large for their type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from cdc_testing.evaluating import planned
from pyspark.sql import SparkSession

from cdc_core import Column, ColumnType, Kind, Op, RowBatch, TableName, TableSchema
from cdc_core.spark.columns import columns_schema, noted, packed_columns, spark_schema
from cdc_core.spark.query_planning import evaluated

TYPES = {
    "id": ColumnType(kind=Kind.INT, source="integer", bits=32),
    "n": ColumnType(kind=Kind.INT, source="integer", bits=32),
    "day": ColumnType(kind=Kind.DATE, source="date"),
    "at": ColumnType(kind=Kind.TIMESTAMPTZ, source="timestamp with time zone"),
    "local": ColumnType(kind=Kind.TIMESTAMP, source="timestamp without time zone"),
}
SCHEMA = TableSchema(
    name=TableName("db", "public", "t"),
    version=1,
    columns=tuple(Column(name=name, type=type_) for name, type_ in TYPES.items()),
    primary_key=("id",),
)
MOST_32, MOST_64 = 2**31 - 1, 2**63 - 1
NUMBERS = {"infinity": (MOST_32, MOST_64), "-infinity": (-MOST_32 - 1, -MOST_64 - 1), "2026-01-01": (20454, 0)}
FAILED = "failed"
INFINITE = ("infinity", "-infinity")

KEPT = {
    "day + 30": "2026-01-31",
    "30 + day": "2026-01-31",
    "day - n": "2025-12-31",
    "date_add(day, n)": "2026-01-02",
    "day + INTERVAL '1' MONTH": "2026-02-01",
    "add_months(day, 1)": "2026-02-01",
    "trunc(day, 'year')": "2026-01-01",
    "last_day(day)": "2026-01-31",
    "next_day(day, 'MON')": "2026-01-05",
    "later(day)": "2026-01-31",
    "coalesce(day, DATE '2000-01-01') + 1": "2026-01-02",
    "CASE WHEN n = 1 THEN day END - 1": "2025-12-31",
    "greatest(day, date_sub(day, 1))": "2026-01-01",
    "to_date(at)": "1970-01-01",
    "at::date": "1970-01-01",
    "local::date + 1": "1970-01-02",
    "cdc_prev.day + 1": "2026-01-02",
    "day::string": "2026-01-01",
    "concat(at, '')": "1970-01-01 00:00:00",
    "day::timestamp": "2026-01-01 00:00:00+00:00",
    "at + INTERVAL '1' DAY": "1970-01-02 00:00:00+00:00",
    "at - make_interval(0, 0, 0, 1)": "1969-12-31 00:00:00+00:00",
    "timestampadd(HOUR, 1, at)": "1970-01-01 01:00:00+00:00",
    "date_trunc('year', at)": "1970-01-01 00:00:00+00:00",
    "local + INTERVAL '1' MONTH": "1970-02-01 00:00:00",
    "local::timestamp": "1970-01-01 00:00:00+00:00",
    "at::timestamp_ntz": "1970-01-01 00:00:00",
    "convert_timezone('UTC', 'Europe/Berlin', local)": "1970-01-01 01:00:00",
}
"""Expressions that stay infinite, and what they give for a finite value."""
FAILING = {
    "year(day)": 2026,
    "extract(DAY FROM day - DATE '2025-12-01')": 31,
    "datediff(day, DATE '2025-12-31')": 1,
    "unix_micros(at)": 0,
    "date_format(day, 'yyyy')": "2026",
    "EXTRACT(year FROM local)": 1970,
    "extract(DAY FROM at - TIMESTAMP '1969-12-31')": 1,
    "months_between(day, DATE '2025-12-01')": 1.0,
    "timestampdiff(DAY, at, TIMESTAMP '1970-01-02')": 1,
}
"""Expressions that fail for what is infinite."""
COMPARED = {
    "day + 30 > DATE '2026-01-01'": (True, False, True),
    "day > statement_timestamp()": (True, False, False),
    "day > at - INTERVAL '1' DAY": (False, False, True),
    "at < DATE '2026-01-01'": (False, True, True),
    "day = at": (True, True, False),
    "local + INTERVAL '1' DAY BETWEEN at AND day": (True, True, True),
    "exists(array(day), x -> x + 1 > DATE '9999-01-01')": (True, False, False),
}
JSON = {
    "named_struct('d', day, 'a', at, 'l', local)": (
        '{"d":"infinity","a":"infinity","l":"infinity"}',
        '{"d":"-infinity","a":"-infinity","l":"-infinity"}',
        '{"d":"2026-01-01","a":"1970-01-01T00:00:00Z","l":"1970-01-01T00:00:00"}',
    ),
    "transform(array(day), x -> x + 1)": ('["infinity"]', '["-infinity"]', '["2026-01-02"]'),
    "map('a', array(at + INTERVAL '1.5' SECOND))": (
        '{"a":["infinity"]}',
        '{"a":["-infinity"]}',
        '{"a":["1970-01-01T00:00:01.5Z"]}',
    ),
    "IF(n IS NULL, named_struct('d', day), NULL)": (None, None, None),
}
OVERFLOWING = [
    "DATE '2026-01-01' + (n + 2147483646)",
    "day - (n + 2147483646) - 2147483647",
    "date_sub(day, -2147483647)",
]
SHARED = ["10 div (n - 1)", "10 div (n - 1) + 1", "10 div (n - 1) BETWEEN 1 AND 2"]
UNKNOWN = ["day + (id - NULL)", "at + make_interval(0, 0, 0, nullif(n, 1))"]


def rows() -> RowBatch:
    days, moments = (pa.array(column) for column in zip(*NUMBERS.values(), strict=True))
    ids, ones = pa.array(range(3), pa.int32()), pa.array([1] * 3, pa.int32())
    moments = [moments.cast(TYPES[name].arrow) for name in ("at", "local")]
    image = RowBatch.struct(SCHEMA.after_type, [ids, ones, days.cast(pa.int32()).cast(pa.date32()), *moments])
    return RowBatch.of(
        SCHEMA,
        op=pa.array([Op.UPDATE] * 3, pa.uint8()),
        updated=RowBatch.timestamps(pa.array([1_800_000_000_000_000_000] * 3), pa.array([0] * 3, pa.int32())),
        key=RowBatch.struct(SCHEMA.key_type, [ids]),
        after=image,
        before=image,
    )


def values(session: SparkSession, *expressions: str) -> dict[str, tuple[Any, ...]]:
    """Return what each expression gives for the infinite and the finite row."""
    items = ", ".join(f"{text} AS x{number}" for number, text in enumerate(expressions))
    plans = planned(session, f"SELECT {items} FROM t", SCHEMA, functions={"later": "(d) -> d + 30"})
    queries = [plan.query for plan in plans]
    schema = columns_schema(queries)
    packed = [
        noted(part, schema) for part in packed_columns(rows(), queries=queries, schema=schema, deletes_as_rows=True)
    ]
    frame = session.createDataFrame(pa.Table.from_batches(packed), spark_schema(queries)).coalesce(1)
    found = evaluated(frame, plans).where("plan >= 0").select("o0.*").toArrow()
    return {
        text: tuple(shown(each) for each in found.column(f"c{number}").combine_chunks())
        for number, text in enumerate(expressions)
    }


def shown(tried: pa.StructScalar) -> Any:
    if not tried.is_valid:
        return FAILED
    value = tried["value"]
    if pa.types.is_temporal(value.type) and value.is_valid:
        number = value.value
        return next((text for text in INFINITE if number in NUMBERS[text]), None) or str(value.as_py())
    return value.as_py()


@pytest.mark.slow
def test_what_is_infinite_stays_so_or_fails_and_nothing_wraps(session: SparkSession) -> None:
    wanted: dict[str, tuple[Any, ...]] = {
        **{text: (*INFINITE, finite) for text, finite in KEPT.items()},
        **{text: (FAILED, FAILED, finite) for text, finite in FAILING.items()},
        **COMPARED,
        **JSON,
        **dict.fromkeys(UNKNOWN, (None, None, None)),
        **dict.fromkeys(SHARED, (FAILED, FAILED, FAILED)),
    }
    found = values(session, *wanted, *OVERFLOWING)
    assert {text: found[text] for text in wanted} == wanted
    assert [found[text][2] for text in OVERFLOWING] == [FAILED] * len(OVERFLOWING)
