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
        for name in ("shop_items", "shop_old"):
            connection.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, n int NOT NULL)")
            connection.execute(f"INSERT INTO {name} SELECT n, n FROM generate_series(1, 3000) n")
        yield connection


def create(sql: Sql, name: str) -> None:
    """Create a table and fill it in the same transaction."""
    with sql.transaction():
        sql.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, n int NOT NULL)")
        sql.execute(f"INSERT INTO {name} SELECT n, n FROM generate_series(1, 5000) n")


def assert_agrees(feed: Feed, uri: str, *tables: str) -> None:
    found = audit(feed.files, uri, tables)
    assert (found.missing, found.extra, found.out_of_order) == (0, 0, 0)


@pytest.mark.slow
def test_a_table_that_is_created_joins_and_a_dropped_one_leaves_while_the_run_continues(
    database: str, sql: Sql, tmp_path: Path, kept_threads: KeptThreads
) -> None:
    with Feed(tmp_path, database, ["shop_*"]) as feed:
        feed.once(kept_threads)

        def come_and_go() -> None:
            create(sql, "shop_new")
            sql.execute("UPDATE shop_items SET n = 0 WHERE id < 100")
            sql.execute("DELETE FROM shop_new WHERE id < 100")
            feed.until("the table joins", lambda: "tables added: public.shop_new; removed: none" in feed.log())
            sql.execute("UPDATE shop_new SET n = 1 WHERE id > 4000")
            sql.execute("ALTER TABLE shop_items RENAME TO things")
            sql.execute("UPDATE things SET n = 2 WHERE id > 2900")
            sql.execute("DROP TABLE shop_old")
            feed.until("the table leaves", lambda: "tables added: none; removed: public.shop_old" in feed.log())

        feed.during(kept_threads, come_and_go)
        feed.once(kept_threads)
        assert "table public.shop_items is now called public.things" in feed.log()
        sql.execute("ALTER TABLE things RENAME TO shop_items")
        assert_agrees(feed, database, "shop_items", "shop_new")
