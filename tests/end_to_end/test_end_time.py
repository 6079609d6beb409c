"""`cdc run` with `end_time` on a real server: exactly the rows up to then, success, and no slot is left."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from cdc_testing.files import last_resolved
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.postgres import Sql, clock, writing
from cdc_testing.runs import Feed, eventually
from cdc_testing.thread_host import KeptThreads

from cdc_core import TerminalError, Timestamp

LEFT = """
SELECT 'slot ' || slot_name FROM pg_replication_slots WHERE database = current_database()
UNION ALL SELECT 'publication ' || pubname FROM pg_publication
"""
COMMITTED = """
SELECT id, (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint FROM items ORDER BY 2, 1
"""


def delivered(feed: Feed) -> list[tuple[int, Timestamp]]:
    lines = (line for path in feed.files.rglob("*.ndjson") for line in path.read_text().splitlines())
    rows = map(json.loads, lines)
    return [(row["after"]["id"], Timestamp.parse(row["updated"])) for row in rows]


@pytest.mark.slow
def test_exactly_the_rows_up_to_the_end_time_arrive_while_writes_go_on(
    database: str, tmp_path: Path, kept_threads: KeptThreads
) -> None:
    def write(connection: Sql, n: int) -> None:
        connection.execute("INSERT INTO items VALUES (%s)", [n])

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id int PRIMARY KEY)")
        connection.execute("INSERT INTO items SELECT generate_series(-100, -1)")
        with Feed(tmp_path, database, ["items"]) as feed:
            feed.once(kept_threads)

        def written() -> list[tuple[int, int]]:
            return [(id_, at) for id_, at in connection.execute(COMMITTED) if id_ >= 0]

        with writing(database, write, writers=1):
            eventually("rows", lambda: len(written()) > 200)
            end = Timestamp(written()[120][1] * 1000)
            with Feed(tmp_path, database, ["items"], options={"end_time": str(end)}) as feed:
                feed.to_its_end(kept_threads)
        expected = {id_ for id_, at in written() if at * 1000 <= end.wall}
        changes = [(id_, updated) for id_, updated in delivered(feed) if id_ >= 0]
        assert sorted(id_ for id_, _ in changes) == sorted(expected)
        assert max(updated for _, updated in changes) == end
        assert last_resolved(feed.files) == end
        assert connection.execute(LEFT).fetchall() == []

        files = sorted(feed.files.rglob("*"))
        feed.to_its_end(kept_threads)
        assert sorted(feed.files.rglob("*")) == files
        assert (
            f"an earlier run delivered everything up to end_time, {end}; to continue, choose another name" in feed.log()
        )


def test_a_scan_that_comes_too_late_ends_the_changefeed_with_an_error(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id int PRIMARY KEY)")
        connection.execute("INSERT INTO items SELECT generate_series(1, 100)")
        end = clock(database)
        feed = resolved_feed(database, f"file://{tmp_path}/files", "items", options={"end_time": str(end)})
        told = (
            rf"^table public.items was scanned at \S+, which is later than end_time, {end}: its contents "
            rf"at that time can no"
        )
        with closing(LocalEngine(feed, tmp_path)) as engine:
            engine.run()
            with pytest.raises(TerminalError, match=told):
                engine.until(end)
        assert not list(tmp_path.rglob("*.ndjson"))
