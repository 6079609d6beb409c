"""PostgreSQL to Parquet files, which pyarrow, Polars, DuckDB and Spark all read as what they are."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from cdc_conformance.encoders.comparison import same
from cdc_encoder_parquet.columns import SCHEMA_KEY
from cdc_encoder_parquet.decoder import ParquetDecoder
from cdc_encoder_parquet.options import ParquetOptions
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.logprobe import LogProbe
from cdc_testing.pages import Page
from cdc_testing.pgvalues import BINARY_MAKERS, TEXT_MAKERS, TYPES
from cdc_testing.runs import Feed
from psycopg import sql

from cdc_core import EncoderContext, Envelope, Op, RowBatch, TableSchema
from cdc_core.decoder import plain_value
from cdc_core.readback.reader import ChangeReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

MAKERS = {**BINARY_MAKERS, **TEXT_MAKERS}
COLUMNS = {f"c{number}": type_ for number, type_ in enumerate(MAKERS)}
ROWS = 40
_LACKING = ("infinity", "24:00:00", "23:59:59.9")
"""Values that Parquet's types cannot represent. The last is rounded to 24:00:00."""


def value(type_: str, chance: random.Random) -> str | None:
    """Return a value that Parquet's types can represent."""
    if chance.random() < 0.15:
        return None
    while True:
        text = MAKERS[type_](chance)
        moment = type_.startswith(("date", "time")) and not type_.startswith("timetz")
        if not (moment and any(word in text for word in _LACKING)) and "{{" not in text:
            return text


def insert(connection: psycopg.Connection[Any], chance: random.Random, key: int) -> None:
    marks = sql.SQL(", ").join(sql.SQL("%s::text::") + sql.SQL(type_) for type_ in COLUMNS.values())  # type: ignore[arg-type]
    values = [value(type_, chance) for type_ in COLUMNS.values()]
    connection.execute(sql.SQL("INSERT INTO t VALUES (%s, {})").format(marks), [key, *values])


def data_files(feed: Feed) -> list[Path]:
    return sorted(feed.files.rglob("*.parquet"))


@contextmanager
def spark_that_reads(kept: KeptSpark) -> Iterator[SparkSession]:
    """Yield a session that supports the type TIME."""
    session = kept.session()
    session.conf.set("spark.sql.timeType.enabled", "true")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        yield session
    finally:
        session.conf.unset("spark.sql.timeType.enabled")
        session.conf.unset("spark.sql.session.timeZone")


def plain(table: pa.Table) -> pa.Table:
    """Return *table* with one type for all variants of texts and lists that libraries use."""
    return table.cast(pa.schema([pa.field(field.name, _plain(field.type)) for field in table.schema]))


def _plain(type_: pa.DataType) -> pa.DataType:
    if type_ in (pa.large_string(), pa.string_view()):
        return pa.string()
    if type_ in (pa.large_binary(), pa.binary_view()):
        return pa.binary()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(pa.field("element", _plain(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in type_])
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", "UTC" if type_.tz else None)
    return pa.time64("us") if type_ == pa.time64("ns") else type_


def assert_same(tool: str, found: pa.Table, wanted: pa.Table) -> None:
    found = plain(found).select(wanted.column_names)
    order = [("id", "ascending"), ("__crdb__updated", "ascending")]
    found, wanted = found.sort_by(order), wanted.sort_by(order)
    for name in wanted.column_names:
        one, other = found.column(name), wanted.column(name)
        assert one.type == other.type, f"{tool}: column {name} is {one.type}, not {other.type}"
        assert written_out(one) == written_out(other), f"{tool}: column {name}"


def written_out(column: pa.ChunkedArray) -> str:
    """Return the text of all values of *column*, in which NaN equals NaN."""
    all_ = 10**6
    text: str = column.combine_chunks().to_string(window=all_, container_window=all_, element_size_limit=all_)
    return text


def keys_and_ops(rows: RowBatch) -> tuple[list[int], list[int]]:
    return rows.column("key").field("id").to_pylist(), rows.column("op").to_pylist()


def test_every_type_is_read_by_every_tool(database: str, tmp_path: Path, kept_spark: KeptSpark) -> None:
    chance = random.Random(5)
    options = {"diff": True, "mvcc_timestamp": True, "compression": "zstd"}
    feed = Feed(tmp_path, database, ["t"], options=options, format_="parquet")
    with psycopg.connect(database, autocommit=True) as connection, feed:
        connection.execute(TYPES)
        columns = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
        connection.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")  # type: ignore[arg-type]
        connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        for key in range(ROWS):
            insert(connection, chance, key)
        feed.once(kept_spark)
        connection.execute("DELETE FROM t WHERE id < 5")
        connection.execute("UPDATE t SET c0 = NOT c0 WHERE id = 7")
        for key in range(ROWS, ROWS + 10):
            insert(connection, chance, key)
        feed.once(kept_spark)
    paths = data_files(feed)
    assert not list(feed.files.rglob("*.gz")) + list(feed.files.rglob("*.zst"))
    assert {pq.ParquetFile(path).metadata.row_group(0).column(0).compression for path in paths} == {"ZSTD"}
    table = pa.concat_tables(pq.read_table(path) for path in paths)
    assert sorted(table.column("__crdb__event_type").to_pylist()) == sorted("c" * (ROWS + 10) + "d" * 5 + "u")
    for row in table.filter(pc.field("__crdb__event_type") == "d").select(["id", "c5", "__crdb__before"]).to_batches():
        assert row.column("c5").null_count == len(row)
        assert row.column("__crdb__before").null_count == 0

    with LogProbe(database) as probe:  # the final contents of the table
        live = probe.scan(probe.version("t"))
    schema = TableSchema.from_json(json.loads(pq.read_schema(paths[0]).metadata[SCHEMA_KEY]))
    decoder = ParquetDecoder(EncoderContext(changefeed="c", envelope=Envelope(updated=True), options=ParquetOptions()))
    latest: dict[int, Any] = {}
    for path in paths:
        rows = decoder.rows(schema, path.read_bytes())
        latest |= dict(zip(rows.column("key").field("id").to_pylist(), rows.column("after"), strict=True))
    assert {key for key, after in latest.items() if after.is_valid} == set(live.field("id").to_pylist())
    for row in map(plain_value, live):
        after = plain_value(latest[row["id"]])
        for column in schema.columns:
            assert same(column.type, row[column.name], after[column.name]), column.type.source

    names = [str(path) for path in paths]
    assert_same("Polars", pl.read_parquet(names).to_arrow(), table)
    assert_same("DuckDB", duckdb.read_parquet(names).to_arrow_table(), table)
    with spark_that_reads(kept_spark) as spark:
        read = spark.read.parquet(*names)
        assert_same("Spark", read.toArrow(), table)
        assert dict(read.dtypes)["c20"] == "time(6)"


def test_files_of_several_versions_are_read_together(database: str, tmp_path: Path, kept_spark: KeptSpark) -> None:
    options = {"schema_change_policy": "nobackfill"}
    feed = Feed(tmp_path, database, ["orders"], options=options, format_="parquet")
    with psycopg.connect(database, autocommit=True) as connection, feed:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, gone text, price numeric(10,2))")
        connection.execute("INSERT INTO orders VALUES (1, 'x', 1.5), (3, 'y', 3.5)")
        feed.once(kept_spark)
        connection.execute("ALTER TABLE orders ADD COLUMN tags text[], DROP COLUMN gone")
        connection.execute("INSERT INTO orders VALUES (2, 2.5, '{a,NULL}')")
        connection.execute("UPDATE orders SET price = 7 WHERE id = 1")
        connection.execute("DELETE FROM orders WHERE id = 3")
        feed.once(kept_spark)
    wanted = [
        (1, "x", None, "c"),
        (3, "y", None, "c"),
        (2, None, ["a", None], "c"),
        (1, None, None, "u"),
        (3, None, None, "d"),
    ]
    names = [str(path) for path in data_files(feed)]
    schemas = pa.unify_schemas([pq.read_schema(name) for name in names])
    found = {
        "pyarrow": ds.dataset(names, schema=schemas).to_table(),
        "Polars": pl.concat([pl.read_parquet(name) for name in names], how="diagonal").to_arrow(),
        "DuckDB": duckdb.read_parquet(names, union_by_name=True).to_arrow_table(),
    }
    (example,) = (text for text in Page("parquet.md").blocks("python") if "spark.read" in text)
    with spark_that_reads(kept_spark) as spark:
        results: dict[str, Any] = {"spark": spark}
        exec(example.replace('"out"', repr(str(feed.files))), results)
        found["Spark"] = results["changes"].toArrow()
        state = results["state"].toArrow().to_pylist()
    for tool, table in found.items():
        read = [(row["id"], row["gone"], row["tags"], row["__crdb__event_type"]) for row in table.to_pylist()]
        assert len(read) == len(wanted), tool
        assert all(row in read for row in wanted), tool
    with ChangeReader(f"file://{feed.files}") as reader:
        once = [(key, op) for rows in reader.read() for key, op in zip(*keys_and_ops(rows), strict=True)]
    assert sorted(once) == sorted([(1, Op.INSERT), (3, Op.INSERT), (2, Op.INSERT), (1, Op.UPDATE), (3, Op.DELETE)])
    newest = {row["id"]: (str(row["price"]), row["tags"]) for row in state}
    assert newest == {1: ("7.00", None), 2: ("2.50", ["a", None])}
