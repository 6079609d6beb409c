"""The option `cursor` on a real server, with the engine's own parts: exactly the changes after a time."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_sink_cloudstorage.names import ResolvedFile, parse_name
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.postgres import clock

from cdc_core import Timestamp

GIVEN = {"slot_name": "s", "publication_name": "p"}
COMMITTED = "SELECT id, (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint * 1000 FROM items"


def engine(database: str, directory: Path, options: dict[str, Any]) -> LocalEngine:
    return LocalEngine(resolved_feed(database, f"file://{directory}/files", "items", options=options), directory)


def delivered(directory: Path) -> dict[int, Timestamp]:
    lines = [line for path in directory.rglob("*.ndjson") for line in path.read_text().splitlines()]
    rows = [json.loads(line) for line in lines]
    assert len({row["after"]["id"] for row in rows}) == len(rows)
    return {row["after"]["id"]: Timestamp.parse(row["updated"]) for row in rows}


def resolved(directory: Path) -> list[Timestamp]:
    names = [parse_name(path.name) for path in directory.rglob("*.RESOLVED")]
    return [name.timestamp for name in names if isinstance(name, ResolvedFile)]


@pytest.mark.parametrize("bounded", [False, True], ids=["open", "bounded"])
def test_exactly_the_changes_after_the_cursor_arrive(database: str, tmp_path: Path, *, bounded: bool) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id int PRIMARY KEY, note text)")
        connection.execute("INSERT INTO items SELECT -n, '' FROM generate_series(1, 10) n")
        connection.execute("CREATE PUBLICATION p FOR TABLE items WITH (publish_via_partition_root = true)")
        connection.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        for n in range(100):
            connection.execute("INSERT INTO items VALUES (%s, repeat('x', 1000))", [n])
        committed = dict(connection.execute(COMMITTED).fetchall())
        after, end = Timestamp(committed[40]), Timestamp(committed[70])
        now = clock(database)
        options: dict[str, Any] = {**GIVEN, "cursor": str(after), "max_step_bytes": "8KB"}
        if bounded:
            options["end_time"] = str(end)
        with closing(engine(database, tmp_path, options)) as feed:
            feed.run()
            for _ in range(3):
                feed.step()  # these steps are before the cursor
            assert feed.high_water == Timestamp()
            feed.run()
            feed.until(end if bounded else now)
            if bounded:
                assert not feed.step()
        expected = {n: Timestamp(at) for n, at in committed.items() if n > 40 and (n <= 70 or not bounded)}
        assert delivered(tmp_path) == expected
        assert min(resolved(tmp_path)) >= after
        assert max(resolved(tmp_path)) >= (end if bounded else now)
        if bounded:
            assert max(resolved(tmp_path)) == end
