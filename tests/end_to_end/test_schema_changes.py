"""Tables that change, and tables that come and go, through the whole pipeline into files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.audit import audit
from cdc_testing.runs import Feed
from cdc_testing.thread_host import KeptThreads

Sql = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def sql(database: str) -> Iterator[Sql]:
    with psycopg.connect(database, autocommit=True) as connection:
        for name in ("items", "orders"):
            connection.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, n int NOT NULL)")
            connection.execute(f"INSERT INTO {name} SELECT n, n FROM generate_series(1, 3000) n")
        yield connection


def assert_agrees(feed: Feed, uri: str, *tables: str) -> None:
    found = audit(feed.files, uri, tables)
    assert (found.missing, found.extra, found.out_of_order) == (0, 0, 0)


@pytest.mark.slow
def test_rows_that_exist_get_the_values_of_a_new_column_and_of_a_new_type(
    database: str, sql: Sql, tmp_path: Path, kept_threads: KeptThreads
) -> None:
    with Feed(tmp_path, database, ["items", "orders"]) as feed:
        feed.once(kept_threads)

        def alter() -> None:
            sql.execute("ALTER TABLE items ADD COLUMN note text NOT NULL DEFAULT 'none'")
            sql.execute("UPDATE items SET note = 'changed' WHERE id % 10 = 0")
            sql.execute("ALTER TABLE items ALTER COLUMN n TYPE text USING 'n' || n")
            sql.execute("INSERT INTO items VALUES (4000, 'n4000', 'new')")

        feed.during(kept_threads, alter)
        feed.once(kept_threads)
        assert_agrees(feed, database, "items", "orders")


@pytest.mark.slow
def test_the_policy_stop_ends_the_run_with_status_1_and_a_sentence(
    database: str, sql: Sql, tmp_path: Path, kept_threads: KeptThreads
) -> None:
    with Feed(tmp_path, database, ["items"], options={"schema_change_policy": "stop"}) as feed:
        feed.once(kept_threads)
        sql.execute("ALTER TABLE items ADD COLUMN note text DEFAULT 'none'")
        assert feed._run_here(kept_threads, "--once") == 1
        assert "table public.items: column note was added with a value for rows that exist, after" in feed.log()
        assert "Traceback" not in feed.log()
    with Feed(tmp_path, database, ["items"]) as feed:
        feed.once(kept_threads)
        assert_agrees(feed, database, "items")


@pytest.mark.slow
def test_tables_are_added_and_removed_by_changing_the_list(
    database: str, sql: Sql, tmp_path: Path, kept_threads: KeptThreads
) -> None:
    with Feed(tmp_path, database, ["items"]) as feed:
        feed.once(kept_threads)
    sql.execute("UPDATE items SET n = 0 WHERE id < 100")
    with Feed(tmp_path, database, ["items", "orders"]) as feed:
        feed.once(kept_threads)
        assert_agrees(feed, database, "items", "orders")
    sql.execute("UPDATE items SET n = 1 WHERE id < 100")
    with Feed(tmp_path, database, ["orders"]) as feed:
        sql.execute("DELETE FROM orders WHERE id < 100")
        feed.once(kept_threads)
        assert_agrees(feed, database, "orders")
