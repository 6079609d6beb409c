"""Helpers for tests with a PostgreSQL server: concurrent writers, the clock, and the rows of a query."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from cdc_testing.runs import eventually

from cdc_core import Timestamp

Sql = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def losing(sql: Sql) -> Iterator[None]:
    """Let the only publication leave out what is changed in the block.

    A changefeed does not notice, unless it takes a step meanwhile: PostgreSQL 18 does not tell publications that were
    altered and altered back from those that only got other generated columns.
    """
    row = sql.execute("SELECT pubname::text FROM pg_publication").fetchone()
    assert row is not None
    sql.execute(f"ALTER PUBLICATION {row[0]} SET (publish = '')")
    yield
    restored = "publish = 'insert, update, delete, truncate', publish_generated_columns = none"
    sql.execute(f"ALTER PUBLICATION {row[0]} SET ({restored})")


@contextmanager
def writing(uri: str, write: Callable[[Sql, int], None], *, writers: int = 2, pause_s: float = 0.0) -> Iterator[None]:
    """Call *write*(connection, n) repeatedly in several threads, with rising n, until the block ends.

    *pause_s* before each call keeps a reader that is slow, as on a busy machine, from having ever more to read.
    """
    stop = threading.Event()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with psycopg.connect(uri, autocommit=True) as connection:
                count = number
                while not stop.wait(pause_s):
                    write(connection, count)
                    count += writers
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def value(sql: Sql, query: str, *parameters: object) -> Any:
    """Return the one value that *query* gives."""
    row = sql.execute(query, parameters or None).fetchone()
    assert row is not None
    return row[0]


def clock(uri: str) -> Timestamp:
    """Return the server's clock: everything that is committed by now is at or below it."""
    with psycopg.connect(uri, autocommit=True) as connection:
        return Timestamp(value(connection, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint") * 1000)


def table_of(sql: Sql, query: str, *, key: int = 1) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the rows of *query* by their key, the first *key* columns."""
    cursor = sql.execute(query)
    names = [column.name for column in cursor.description or ()]
    return {row[:key]: dict(zip(names, row, strict=True)) for row in cursor}


@contextmanager
def another_tablespace(sql: Sql) -> Iterator[None]:
    """A tablespace of the server. At the end nothing is left in it."""
    sql.execute("SET allow_in_place_tablespaces = on")
    sql.execute("CREATE TABLESPACE elsewhere LOCATION ''")
    try:
        yield
    finally:
        eventually("the tablespace to be empty", lambda: _dropped(sql, "elsewhere"))


def _dropped(sql: Sql, tablespace: str) -> bool:
    """Move what is in *tablespace* and drop it; return False while a statement of others puts something there."""
    sql.execute(f"ALTER TABLE ALL IN TABLESPACE {tablespace} SET TABLESPACE pg_default")
    try:
        sql.execute(f"DROP TABLESPACE {tablespace}")
    except psycopg.errors.ObjectNotInPrerequisiteState:
        return False
    return True


@contextmanager
def no_free_slot(sql: Sql) -> Iterator[None]:
    """Take all slots of the server that are free, until the block ends. No slot becomes free meanwhile."""
    temporary = "SELECT FROM pg_replication_slots WHERE temporary"
    eventually("slots of ended connections to be dropped", lambda: not sql.execute(temporary).rowcount)
    free = "SELECT current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots)"
    count = sql.execute(free).fetchone()
    assert count is not None
    names = [f"filler_{number}" for number in range(count[0])]
    for name in names:
        sql.execute("SELECT pg_create_physical_replication_slot(%s)", [name])
    try:
        yield
    finally:
        for name in names:
            sql.execute("SELECT pg_drop_replication_slot(%s)", [name])
