"""`cdc move`: a stopped changefeed of PostgreSQL leaves out a backlog, or delivers changes again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cdc_rangefeed_postgres.history import PostgresHistory
from cdc_testing.documented_role import documented
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.postgres import Sql, clock, value

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.main import main
from cdc_core.engine.fencing import RunLock
from cdc_core.errors import FencedError

Capture = pytest.CaptureFixture[str]
TOML = """
[changefeed.orders]
source = "{database}"
tables = ["orders"]
sink = "file://{directory}/out"
[changefeed.orders.options]
updated = true
resolved = true
min_checkpoint_frequency = 0
"""
NEWEST = "SELECT pg_current_wal_insert_lsn()::text"


@pytest.fixture
def sql(sql: Sql) -> Sql:
    sql.execute("CREATE TABLE orders (id int PRIMARY KEY, n int)")
    sql.execute("INSERT INTO orders VALUES (1, 0)")
    return sql


@pytest.fixture
def feed(database: str, sql: Sql, tmp_path: Path) -> Iterator[LocalEngine]:
    """The changefeed of shop.toml after a run, without Spark; its source still needs it to be dropped."""
    (tmp_path / "shop.toml").write_text(TOML.format(database=documented(database), directory=tmp_path))
    resolved = resolved_feed(database, f"file://{tmp_path}/out", "orders", name="orders")
    engine = LocalEngine(resolved, tmp_path / ".cdc")
    with closing(engine.store):
        run(engine, database)
        yield engine
        engine.close()
        assert main(["drop", str(tmp_path / "shop.toml"), "--yes"]) == 0


def run(engine: LocalEngine, database: str) -> None:
    engine.run()
    engine.until(clock(database))
    engine.close()


def insert(sql: Sql, *ids: int) -> str:
    """Insert rows, each in a transaction, and return the position after them."""
    for id_ in ids:
        sql.execute("INSERT INTO orders VALUES (%s, 0)", [id_])
    return str(value(sql, NEWEST))


def move(directory: Path, *arguments: str, status: int = 0) -> None:
    assert main(["move", str(directory / "shop.toml"), *arguments]) == status


def refused(directory: Path, capsys: Capture, *arguments: str) -> str:
    move(directory, *arguments, status=2)
    return capsys.readouterr().err


def delivered(directory: Path) -> list[tuple[int, str]]:
    """Return key and `updated` of each row, and -1 for each resolved mark, in the order of the files' names."""
    found = []
    for path in sorted((directory / "out").rglob("*")):
        if path.name.endswith(".RESOLVED"):
            found.append((-1, json.loads(path.read_text())["resolved"]))
        elif path.name.endswith(".ndjson"):
            rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
            found += [(row["after"]["id"], row["updated"]) for row in rows]
    return found


def keys(directory: Path) -> list[int]:
    return [key for key, _ in delivered(directory) if key != -1]


def test_a_backlog_is_left_out_and_the_files_stay_in_order(
    feed: LocalEngine, database: str, sql: Sql, tmp_path: Path, capsys: Capture
) -> None:
    at = insert(sql, 11, 12)
    insert(sql, 13)
    high_water, token = feed.high_water, feed.progress.token
    capsys.readouterr()
    move(tmp_path, "--to", at, "--yes")
    told = capsys.readouterr().out
    assert f"  from {token['lsn']}\n  to   {at}\n  changes in between are NOT delivered\n" in told
    assert feed.high_water == high_water, "what is resolved stays so"
    (event,) = feed.store.events.read("orders", kinds=["changefeed_moved"])
    assert event.details == {"from": token["lsn"], "to": at, "forward": True, "back": False}
    run(feed, database)
    assert keys(tmp_path) == [1, 13]
    times = [time for _, time in delivered(tmp_path)]
    assert times == sorted(times), "rows and marks by name are rows and marks by time"


def test_rows_come_again_later_than_all_before_and_every_mark_stays_true(
    feed: LocalEngine, database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = feed.progress.token["lsn"]
    monkeypatch.setattr(PostgresHistory, "release", lambda *_: None)  # so the source retains more than it needs
    insert(sql, 11, 12)
    sql.execute("UPDATE orders SET n = 7 WHERE id = 11")
    run(feed, database)
    move(tmp_path, "--to", before, "--yes")
    insert(sql, 13)
    run(feed, database)
    assert keys(tmp_path) == [1, 11, 12, 11, 11, 12, 11, 13]
    found = delivered(tmp_path)
    assert [time for _, time in found] == sorted(time for _, time in found)
    last = max(index for index, (key, _) in enumerate(found) if key == 12)
    assert found[last - 2][0] == -1, "after the last mark of the first time, nothing is resolved before the end"


def test_a_move_is_undone_with_the_position_that_the_event_keeps(
    feed: LocalEngine, database: str, sql: Sql, tmp_path: Path, capsys: Capture
) -> None:
    insert(sql, 11)
    move(tmp_path, "--to", "now", "--yes")
    (event,) = feed.store.events.read("orders", kinds=["changefeed_moved"])
    move(tmp_path, "--to", event.details["from"], "--yes")
    assert "changes in between are delivered again" in capsys.readouterr().out
    move(tmp_path, "--to", event.details["from"])
    assert f"is already at {event.details['from']}" in capsys.readouterr().out
    run(feed, database)
    assert keys(tmp_path) == [1, 11]


def test_what_is_refused_is_refused_before_anything(
    feed: LocalEngine, sql: Sql, tmp_path: Path, capsys: Capture
) -> None:
    saved = feed.progress
    insert(sql, 11)
    assert "this needs confirmation" in refused(tmp_path, capsys, "--to", "now")
    ahead = refused(tmp_path, capsys, "--to", "FFFF/0", "--yes")
    assert ahead.startswith("error: changefeed 'orders' cannot be moved: position FFFF/0 is after the end of the log")
    assert "later than the source's clock" in refused(tmp_path, capsys, "--to", "2200-01-01T00:00:00Z", "--yes")
    assert "where the log retained by replication slot" in refused(tmp_path, capsys, "--to", "0/1", "--yes")
    for text in ("1.9999999999", "9" * 5000 + ".0000000000"):
        assert "is neither 'now', nor a time" in refused(tmp_path, capsys, "--to", text, "--yes")
    assert "choose one of" in refused(tmp_path, capsys, "--to", "now", "--source", "other", "--yes")
    with RunLock(tmp_path / ".cdc" / "orders.lock") as lock:
        assert lock.acquire()
        assert "is running from" in refused(tmp_path, capsys, "--to", "now", "--yes")
    assert feed.progress == saved
    assert feed.store.events.read("orders", kinds=["changefeed_moved"]) == []


def test_a_run_that_began_at_the_same_time_is_fenced_or_wins(
    feed: LocalEngine, database: str, sql: Sql, tmp_path: Path
) -> None:
    changefeeds = Changefeeds(feed.store)
    insert(sql, 11)
    resolved = resolved_feed(database, f"file://{tmp_path}/out", "orders", name="orders")
    planned = changefeeds.plan_move(resolved, "now")
    feed.run()
    with pytest.raises(FencedError):
        changefeeds.move(planned)
    changefeeds.move(changefeeds.plan_move(resolved, "now"))
    with pytest.raises(FencedError):
        feed.until(clock(database))
