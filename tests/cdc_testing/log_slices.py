"""Slices of PostgreSQL's log: what a reader gives for them, and whether two readings are the same."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import pyarrow as pa
from cdc_rangefeed_postgres.reader import PostgresReader
from cdc_testing.feeding import Feed
from cdc_testing.postgres import Sql

from cdc_core import RowBatch, Slice, SpanMark

Items = list[RowBatch | SpanMark]


def create_tables(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int, v text)")
    sql.execute("CREATE TABLE u (id int PRIMARY KEY, v text)")


def write(database: str, sql: Sql) -> None:
    """Some 6 MB: small transactions on two tables, and a large one that other commits are in the middle of."""
    sql.execute("INSERT INTO t SELECT g, 0, repeat('x', 300) FROM generate_series(1, 2000) g")
    for number in range(60):
        sql.execute("UPDATE t SET n = %s WHERE id BETWEEN %s AND %s", [number, number * 7, number * 7 + 40])
        sql.execute("INSERT INTO u SELECT g + %s, repeat('y', 50) FROM generate_series(1, 30) g", [number * 100])
        if number % 20 == 0:
            sql.execute("SELECT pg_log_standby_snapshot()" if sql.info.server_version >= 160000 else "CHECKPOINT")
    with psycopg.connect(database) as large:
        for number in range(10):
            large.execute(
                "INSERT INTO t SELECT g + %s, %s, 'z' FROM generate_series(1, 1000) g", [10_000 + 1000 * number, number]
            )
            sql.execute("UPDATE u SET v = 'later' WHERE id = %s", [number + 1])
    sql.execute("DELETE FROM u WHERE id % 2 = 0")


def items_of(feed: Feed, slice_: Slice) -> Items:
    with closing(PostgresReader(feed.context)) as reader:
        return list(reader.read(slice_))


def with_payload(slice_: Slice, **changes: Any) -> Slice:
    return replace(slice_, payload=replace(slice_.payload, **changes))


def by_sql(slice_: Slice) -> Slice:
    """Return the slice without the session that has it."""
    return with_payload(slice_, session="")


def same(one: Items, other: Items) -> bool:
    """Whether both have the same batches, rows, timestamps and marks."""
    return len(one) == len(other) and all(first == second for first, second in zip(one, other, strict=True))


@dataclass(frozen=True)
class Rows:
    """All rows by table, with every column and timestamp, in their order, and the marks. Not printed if they differ."""

    tables: dict[str, pa.Table] = field(repr=False)
    marks: list[SpanMark] = field(repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and (self.tables, self.marks) == (other.tables, other.marks)

    def __len__(self) -> int:
        return sum(map(len, self.tables.values()))


def rows_of(items: Items) -> Rows:
    """Return what is the same however a slice was cut into batches."""
    batches: dict[str, list[pa.RecordBatch]] = {}
    for item in items:
        if isinstance(item, RowBatch):
            batches.setdefault(item.schema.name.qualified, []).append(item.batch)
    tables = {name: pa.Table.from_batches(found) for name, found in batches.items()}
    return Rows(tables, [item for item in items if isinstance(item, SpanMark)])
