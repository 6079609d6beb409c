"""The files of a changefeed as a DataFrame: correct types and every row once, in any format."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.local_engine import LocalEngine, resolved_feed
from pyspark.sql import SparkSession

from cdc_core import ChangeReader, ConfigError
from cdc_core.spark.changes import changes

pytestmark = pytest.mark.slow

CREATE = """
CREATE TABLE orders (
    id bigint PRIMARY KEY, price numeric(10,2), at timestamptz, day date, hour time, mood text, data bytea, size int
)"""
FIRST = (
    "INSERT INTO orders VALUES (1, 12.50, '2020-01-01 10:00+00', '2020-01-02', '23:30', 'glad', '\\x01ff', 7),"
    " (2, NULL, NULL, NULL, '12:30', NULL, NULL, NULL)"
)


@pytest.fixture(params=["json", "parquet"])
def engine(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalEngine]:
    with psycopg.connect(database) as connection:
        connection.execute(CREATE)
        connection.execute(FIRST)
    feed = resolved_feed(
        database,
        f"file://{tmp_path}/files",
        "public.orders",
        format_=request.param,
        options={"file_size": 1, "schema_change_policy": "nobackfill"},
    )
    engine = LocalEngine(feed, tmp_path)
    engine.run()
    yield engine
    engine.close()


@pytest.fixture
def spark(kept_spark: KeptSpark) -> SparkSession:
    return kept_spark.session()


def commit(engine: LocalEngine, database: str, *statements: str) -> None:
    with psycopg.connect(database) as connection:
        for statement in statements:
            connection.execute(statement)
    before = engine.high_water
    while engine.high_water <= before:
        engine.step()


def test_columns_have_the_types_of_the_table_and_rows_come_once(
    engine: LocalEngine, database: str, tmp_path: Path, spark: SparkSession
) -> None:
    uri = f"file://{tmp_path}/files"
    while not engine.high_water:
        engine.step()
    commit(engine, database, "UPDATE orders SET price = price + 1 WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    with ChangeReader(uri) as reader:
        middle = reader.newest()
    commit(
        engine,
        database,
        "ALTER TABLE orders DROP COLUMN mood, ADD COLUMN weight double precision, ALTER COLUMN size TYPE bigint",
        "INSERT INTO orders (id, size, weight) VALUES (3, 5000000000, 0.5)",
    )
    found = changes(spark, uri, table="public.orders")
    assert dict(found.dtypes) == {
        "op": "string",
        "updated": "string",
        "id": "bigint",
        "price": "decimal(10,2)",
        "at": "timestamp",
        "day": "date",
        "hour": "string",
        "mood": "string",
        "data": "binary",
        "size": "bigint",
        "weight": "double",
    }
    rows: list[Any] = found.orderBy("updated", "id").collect()
    assert [row.id for row in rows] == [1, 2, 1, 2, 3]
    first = rows[0]
    assert (first.price, first.day, first.hour) == (Decimal("12.50"), date(2020, 1, 2), "23:30:00.000000")
    assert (first.at.astimezone(UTC), bytes(first.data)) == (datetime(2020, 1, 1, 10, tzinfo=UTC), b"\x01\xff")
    assert (rows[2].price, rows[2].mood, rows[3].op, rows[3].mood) == (Decimal("13.50"), "glad", "delete", None)
    assert (rows[4].size, rows[4].weight, rows[4].mood) == (5_000_000_000, 0.5, None)
    assert [row.id for row in changes(spark, uri, table="orders", upto=middle).collect()] != []
    assert changes(spark, uri, table="orders", upto=middle).count() == 4
    assert [row.id for row in changes(spark, uri, table="orders", after=middle).collect()] == [3]
    with ChangeReader(uri) as reader:
        last = reader.newest()
    nothing = changes(spark, uri, table="orders", after=last)
    assert nothing.collect() == []
    assert nothing.columns == [name for name in found.columns if name != "mood"]
    with pytest.raises(ConfigError, match="is not a resolved mark of the files at"):
        changes(spark, uri, table="orders", after=middle.next())


def test_a_changed_type_can_be_read_and_manifests_are_read_once(
    engine: LocalEngine, database: str, tmp_path: Path, spark: SparkSession
) -> None:
    while not engine.high_water:
        engine.step()
    commit(
        engine,
        database,
        "ALTER TABLE orders ALTER size TYPE numeric(10,2), ALTER id TYPE numeric(12,1), ALTER data TYPE int USING 5",
        "INSERT INTO orders (id, price, size) VALUES (3.5, 9.75, 1.25)",
    )
    found = changes(spark, f"file://{tmp_path}/files", table="orders", as_text=["price"])
    for file in tmp_path.glob("files/**/*.MANIFEST.*"):
        file.unlink()
    assert dict(found.dtypes).items() >= {"size": "decimal(12,2)", "id": "decimal(20,1)", "data": "string"}.items()
    rows: list[Any] = found.where("op <> 'delete'").orderBy("updated", "id").collect()
    assert [(row.id, row.price, row.size, row.data) for row in (rows[0], rows[-1])] == [
        (Decimal("1.0"), "12.50", Decimal("7.00"), "\\x01ff"),
        (Decimal("3.5"), "9.75", Decimal("1.25"), None),
    ]


def test_plans_do_not_show_the_uri(
    engine: LocalEngine, tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    while not engine.high_water:
        engine.step()
    found = changes(spark, f"file://{tmp_path}/files?topic_prefix=one%26only", table="orders")
    assert found.count() == 2
    found.explain(extended=True)
    shown = capfd.readouterr().out
    assert "cdc_changes" in shown.lower() or "BatchScan" in shown
    assert "only" not in shown


def test_unknown_tables_and_conflicting_columns_are_refused(
    engine: LocalEngine, database: str, tmp_path: Path, spark: SparkSession
) -> None:
    uri = f"file://{tmp_path}/files"
    while not engine.high_water:
        engine.step()
    with pytest.raises(ConfigError, match=r"ChangeReader\('file://.*'\) has no file with rows of table 'users'"):
        changes(spark, uri, table="users")
    commit(engine, database, "ALTER TABLE orders ADD COLUMN op text", "INSERT INTO orders (id, op) VALUES (9, 'x')")
    with pytest.raises(ConfigError, match=r"has its own column 'op'\. Set a prefix"):
        changes(spark, uri, table="orders")
    assert changes(spark, uri, table="orders", prefix="__cdc_").where("op = 'x' AND __cdc_op = 'insert'").count() == 1
