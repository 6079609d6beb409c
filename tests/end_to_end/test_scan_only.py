"""A changefeed with initial_scan = "only" on a real server: the tables once, and nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from cdc_testing.runs import Feed
from cdc_testing.thread_host import KeptThreads

LEFT = """
SELECT 'slot ' || slot_name FROM pg_replication_slots WHERE database = current_database()
UNION ALL SELECT 'publication ' || pubname FROM pg_publication
"""


@pytest.mark.slow
def test_a_scan_leaves_no_slot_behind_and_is_not_begun_again(
    database: str, tmp_path: Path, kept_threads: KeptThreads
) -> None:
    options = {"initial_scan": "only", "updated": False, "resolved": False}
    feed = Feed(tmp_path, database, ["items"], options=options)
    with psycopg.connect(database, autocommit=True) as connection, feed:
        connection.execute("CREATE TABLE items (id int PRIMARY KEY, note text)")
        connection.execute("INSERT INTO items SELECT n, 'item ' || n FROM generate_series(1, 1000) n")
        feed.once(kept_threads)
        files = sorted(feed.files.rglob("*.ndjson"))
        keys = [json.loads(line)["after"]["id"] for path in files for line in path.read_text().splitlines()]
        assert sorted(keys) == list(range(1, 1001))
        assert connection.execute(LEFT).fetchall() == []

        connection.execute("INSERT INTO items VALUES (1001, 'too late')")
        feed.once(kept_threads)
        assert sorted(feed.files.rglob("*.ndjson")) == files
        assert connection.execute(LEFT).fetchall() == []
        assert "to scan again, use another name" in feed.log()
