"""`cdc run --once`: the tables, then what changed, and nothing twice."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.audit import audit
from cdc_testing.files import last_resolved
from cdc_testing.runs import Feed
from cdc_testing.thread_host import KeptThreads


def rows(feed: Feed) -> int:
    return sum(path.read_bytes().count(b"\n") for path in feed.files.rglob("*.ndjson"))


def assert_agrees(feed: Feed, uri: str, *tables: str) -> None:
    found = audit(feed.files, uri, tables)
    assert (found.missing, found.extra, found.out_of_order, found.not_once) == (0, 0, 0, 0)


@pytest.mark.slow
def test_a_second_run_reads_only_the_log(database: str, tmp_path: Path, kept_threads: KeptThreads) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, n int, note text)")
        connection.execute("INSERT INTO items SELECT n, 0, 'item ' || n FROM generate_series(1, 5000) n")
        with Feed(tmp_path, database, ["items"]) as feed:
            feed.once(kept_threads)
            assert rows(feed) == 5000
            connection.execute("UPDATE items SET n = n + 1 WHERE id <= 2000")
            connection.execute("DELETE FROM items WHERE id > 4900")
            feed.once(kept_threads)
            assert rows(feed) == 5000 + 2000 + 100
            assert_agrees(feed, database, "items")
            row = connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").fetchone()
            assert row is not None
            feed.once(kept_threads)
            assert last_resolved(feed.files).wall >= row[0] * 1000
            assert rows(feed) == 7100
            assert feed.log().count("scan begins at") == 1
            assert feed.log().count("no scan; following the log") == 2
