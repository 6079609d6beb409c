"""Rescans through the engine into files: asked for in the store, at least once, and with a new slot after a loss."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.files import Row, delivered, later
from cdc_testing.imports import ROOT
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.postgres import Sql, clock, table_of, writing
from cdc_testing.runs import Feed, eventually
from cdc_testing.stored import ask_rescan

from cdc_core import RowBatch, Slice, SliceReader, SpanMark, Timestamp
from cdc_core.cli.main import main
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.start_position import register
from cdc_core.errors import ConfigError, HistoryLostError, RetryableError, TerminalError
from cdc_core.store.progress import ProgressStore, RescanRecord, store_url
from cdc_core.store.rescans import Rescans
from cdc_core.store.saved_progress import SavedProgress


@pytest.fixture
def sql(sql: Sql) -> Sql:
    for name in ("items", "orders"):
        sql.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int NOT NULL)")
        sql.execute(f"INSERT INTO {name} SELECT g, 0 FROM generate_series(1, 500) g")
    return sql


def feed_into(directory: Path, database: str, *tables: str, **options: Any) -> ResolvedChangefeed:
    return resolved_feed(database, f"file://{directory}/files", *tables, options=options, name="test")


def begun(store: ProgressStore) -> list[Timestamp | None]:
    return [found.began for found in store.rescans.of("test")]


def complete(engine: LocalEngine) -> Callable[[], bool]:
    """Return a condition that takes a step, and holds when every rescan is complete."""

    def steps() -> bool:
        engine.step()
        marks = begun(engine.store)
        return all(mark is not None and engine.high_water > mark for mark in marks)

    return steps


def catch_up(engine: LocalEngine, database: str) -> None:
    """Return when everything that is committed now is resolved."""
    until = clock(database)

    def reached() -> bool:
        engine.step()
        return engine.high_water >= until

    eventually("the commits", reached)


def catch_up_again(engine: LocalEngine, database: str) -> None:
    """Return when everything that is committed now is resolved, in this run or in one after a table has left."""
    try:
        catch_up(engine, database)
    except RetryableError:
        engine.run()
        catch_up(engine, database)


def started(feed: ResolvedChangefeed, directory: Path, database: str, **wraps: Any) -> LocalEngine:
    engine = LocalEngine(feed, directory, **wraps)
    engine.run()
    catch_up(engine, database)
    return engine


def test_a_rescan_is_taken_by_a_running_changefeed_while_changes_continue(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    engine = started(feed_into(tmp_path, database, "items", "orders"), tmp_path, database)

    def write(connection: Sql, n: int) -> None:
        connection.execute("UPDATE items SET n = n + 1 WHERE id = %s", [n % 500 + 1])

    with writing(database, write, writers=1):
        ask_rescan(engine.store, "test", table=f"{sql.info.dbname}.public.items")
        eventually("the rescan", complete(engine))
    catch_up(engine, database)
    (began,) = begun(engine.store)
    assert later(delivered(tmp_path / "files", "items"), began) == set(range(1, 501))
    assert later(delivered(tmp_path / "files", "orders"), began) == set()
    newest = {row["key"][0]: row["after"]["n"] for row in sorted(delivered(tmp_path / "files", "items"), key=_updated)}
    assert newest == {key[0]: row["n"] for key, row in table_of(sql, "SELECT * FROM items").items()}
    engine.close()


class BreaksOnce(SliceReader):
    """Fails when the first slice of a rescan has been read, as a worker that dies."""

    def __init__(self, reader: SliceReader, broken: list[bool]) -> None:
        super().__init__(reader.context)
        self._reader = reader
        self._broken = broken

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        yield from self._reader.read(slice_)
        if self._broken:
            self._broken.clear()
            raise RetryableError("the worker died")

    def close(self) -> None:
        self._reader.close()


def test_a_step_that_breaks_off_leaves_the_rescan_waiting(database: str, sql: Sql, tmp_path: Path) -> None:
    broken: list[bool] = []
    engine = started(
        feed_into(tmp_path, database, "items"),
        tmp_path,
        database,
        wrap_reader=lambda reader: BreaksOnce(reader, broken),
    )
    ask_rescan(engine.store, "test", table=None)
    sql.execute("UPDATE items SET n = 1 WHERE id = 1")
    broken.append(True)
    eventually("the break", lambda: _breaks(engine))
    assert begun(engine.store) == [None]
    engine.run()
    eventually("the rescan", complete(engine))
    assert later(delivered(tmp_path / "files", "items"), begun(engine.store)[0]) == set(range(1, 501))
    engine.close()


def rule() -> str:
    """Return the statement of docs/postgres-slots.md that removes rows which were deleted while the slot was gone."""
    section = (ROOT / "docs" / "postgres-slots.md").read_text().partition("## A slot that was lost")[2]
    (found,) = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    return str(found)


def test_after_a_lost_slot_consumers_that_follow_the_rule_have_the_state(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    feed = feed_into(tmp_path, database, "orders")
    engine = started(feed, tmp_path, database)
    resolved = engine.high_water
    engine.close()
    sql.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
    )
    sql.execute("DELETE FROM orders WHERE id <= 100")
    sql.execute("UPDATE orders SET n = 2 WHERE id = 200")
    with pytest.raises(HistoryLostError, match=r"no longer exists: .* `cdc rescan FILE NAME --all --new-slot`"):
        engine.run()
    ask_rescan(engine.store, "test", table=None, new_slot=True)
    engine.run()
    sql.execute("INSERT INTO orders VALUES (1, 3), (501, 3)")
    sql.execute("DELETE FROM orders WHERE id = 300")
    assert engine.high_water == resolved, "what is resolved stays so"
    eventually("the rescan", complete(engine))
    catch_up(engine, database)
    (began,) = begun(engine.store)
    rows = delivered(tmp_path / "files", "orders")
    assert began is not None
    assert began > resolved
    assert later(rows, began) == set(range(101, 501)) | {1, 501}
    target = sqlite3.connect(":memory:")
    target.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER, updated TEXT NOT NULL)")
    for row in sorted(rows, key=_updated):
        after = row["after"] or {"id": row["key"][0], "n": None}
        target.execute("REPLACE INTO orders VALUES (?, ?, ?)", (after["id"], after["n"], row["updated"]))
        if row["after"] is None:
            target.execute("DELETE FROM orders WHERE id = ?", (row["key"][0],))
    assert target.execute("SELECT count(*) FROM orders WHERE id < 101").fetchone() == (100,), "they are still there"
    target.execute(rule(), {"began": str(began)})
    found = {(id_,): {"id": id_, "n": n} for id_, n in target.execute("SELECT id, n FROM orders")}
    assert found == table_of(sql, "SELECT * FROM orders")
    target.close()
    engine.run()  # once is enough
    assert begun(engine.store) == [began]
    engine.close()


def test_a_crash_between_the_new_slot_and_its_token_begins_again(
    database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = feed_into(tmp_path, database, "orders", initial_scan="no")
    engine = started(feed, tmp_path, database)
    engine.close()
    ask_rescan(engine.store, "test", table=None, new_slot=True)
    for aggregate, method in ((Rescans, "begin"), (SavedProgress, "save")):
        with monkeypatch.context() as patch:
            patch.setattr(aggregate, method, _interrupted)
            with pytest.raises(KeyboardInterrupt):
                engine.run()
    engine.run()
    eventually("the rescan", complete(engine))
    assert later(delivered(tmp_path / "files", "orders"), begun(engine.store)[0]) == set(range(1, 501))
    mine = "SELECT count(*) FROM pg_replication_slots WHERE NOT temporary AND database = current_database()"
    assert sql.execute(mine).fetchone() == (1,)
    engine.close()


def test_a_slot_made_beforehand_must_be_made_again_first(database: str, sql: Sql, tmp_path: Path) -> None:
    sql.execute("CREATE PUBLICATION given FOR TABLE orders WITH (publish_via_partition_root = true)")
    slot = f"given_{sql.info.dbname}"
    create = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
    sql.execute(create, [slot])
    feed = feed_into(tmp_path, database, "orders", slot_name=slot, publication_name="given")
    engine = started(feed, tmp_path, database)
    engine.close()
    sql.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    sql.execute("DELETE FROM orders WHERE id <= 100")
    ask_rescan(engine.store, "test", table=None, new_slot=True)
    with pytest.raises(ConfigError, match=rf"{slot} does not exist. Run SELECT pg_create_logical_replication_slot"):
        engine.run()
    sql.execute(create, [slot])
    engine.run()
    eventually("the rescan", complete(engine))
    assert later(delivered(tmp_path / "files", "orders"), begun(engine.store)[0]) == set(range(101, 501))
    engine.close()
    sql.execute("SELECT pg_drop_replication_slot(%s)", [slot])


def test_a_new_slot_does_not_begin_at_the_cursor(database: str, sql: Sql, tmp_path: Path) -> None:
    sql.execute("CREATE PUBLICATION given FOR TABLE orders WITH (publish_via_partition_root = true)")
    slot = f"given_{sql.info.dbname}"
    create = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
    sql.execute(create, [slot])
    sql.execute("UPDATE orders SET n = 1 WHERE id = 1")
    cursor = str(clock(database))
    sql.execute("UPDATE orders SET n = 1 WHERE id = 2")
    feed = feed_into(tmp_path, database, "orders", slot_name=slot, publication_name="given", cursor=cursor)
    engine = started(feed, tmp_path, database)
    assert {row["key"][0] for row in delivered(tmp_path / "files", "orders")} == {2}
    engine.close()
    sql.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    sql.execute("DELETE FROM orders WHERE id > 400")
    sql.execute(create, [slot])
    ask_rescan(engine.store, "test", table=None, new_slot=True)
    engine.run()
    eventually("the rescan", complete(engine))
    assert later(delivered(tmp_path / "files", "orders"), begun(engine.store)[0]) == set(range(1, 401))
    engine.close()
    sql.execute("SELECT pg_drop_replication_slot(%s)", [slot])


def test_with_a_new_slot_tables_are_followed_under_their_present_names(database: str, sql: Sql, tmp_path: Path) -> None:
    engine = started(feed_into(tmp_path, database, "public.*"), tmp_path, database)
    sql.execute("ALTER TABLE orders RENAME TO sales")
    catch_up(engine, database)
    sql.execute("UPDATE sales SET n = 1 WHERE id = 1")
    sql.execute("DROP TABLE items")
    catch_up_again(engine, database)
    engine.close()
    assert not list((tmp_path / "files").rglob("*sales*.ndjson"))
    sql.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
    )
    sql.execute("CREATE TABLE items (id int PRIMARY KEY, n int); INSERT INTO items VALUES (7, 7)")
    ask_rescan(engine.store, "test", table=None, new_slot=True)
    engine.run()
    eventually("the rescan", complete(engine))
    began = begun(engine.store)[0]
    assert later(delivered(tmp_path / "files", "sales"), began) == set(range(1, 501))
    assert later(delivered(tmp_path / "files", "items"), began) == {7}
    engine.close()


@pytest.mark.parametrize("scan", [True, False])
def test_what_was_chosen_for_an_added_table_is_kept_until_it_has_joined(
    database: str, sql: Sql, tmp_path: Path, scan: bool
) -> None:
    option = {"initial_scan": "no" if scan else "yes"}
    engine = started(feed_into(tmp_path, database, "items", **option), tmp_path, database)
    engine.close()
    known = engine.store.changefeeds.find("test")
    assert known is not None
    engine.store.rescans.choose_initial_scans("test", known.epoch, {"public.orders": scan, "later": True})
    wider = LocalEngine(feed_into(tmp_path, database, "items", "public.orders", **option), tmp_path)
    wider.run()
    assert wider.store.rescans.initial_scans("test") == {"later": True}
    sql.execute("INSERT INTO orders VALUES (600, 0)")
    catch_up(wider, database)
    assert {row["key"][0] for row in delivered(tmp_path / "files", "orders")} == (
        {*range(1, 501), 600} if scan else {600}
    )
    wider.close()


def test_a_table_that_is_dropped_and_added_before_the_next_run_is_scanned(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    both = feed_into(tmp_path, database, "items", "orders")
    engine = started(both, tmp_path, database)
    before = engine.progress.latest
    for feed in (feed_into(tmp_path, database, "items"), both):
        register(feed, engine.store)
    engine.run()
    eventually("the rescan", complete(engine))
    assert later(delivered(tmp_path / "files", "orders"), before) == set(range(1, 501))
    assert later(delivered(tmp_path / "files", "items"), before) == set()
    engine.close()


def test_a_table_whose_rescan_comes_too_late_can_be_left_out(database: str, sql: Sql, tmp_path: Path) -> None:
    started(feed_into(tmp_path, database, "items", "orders"), tmp_path, database).close()
    sql.execute("INSERT INTO orders VALUES (501, 0)")
    end = clock(database)
    late = LocalEngine(feed_into(tmp_path, database, "items", "orders", end_time=str(end)), tmp_path)
    ask_rescan(late.store, "test", table=f"{sql.info.dbname}.public.items")
    late.run()
    with pytest.raises(
        TerminalError, match=r"If the table .* is read again, `cdc alter FILE NAME --drop public\.items`"
    ):
        late.until(end)
    late.close()
    rest = LocalEngine(feed_into(tmp_path, database, "orders", end_time=str(end)), tmp_path)
    rest.run()
    rest.until(end)
    assert 501 in {row["key"][0] for row in delivered(tmp_path / "files", "orders")}
    rest.close()


def _updated(row: Row) -> str:
    return str(row["updated"])


def _breaks(engine: LocalEngine) -> bool:
    try:
        engine.step()
    except RetryableError:
        return True
    return False


def _interrupted(*_: object, **__: object) -> RescanRecord:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_commands_know_a_renamed_table_by_the_name_under_which_it_is_followed(
    database: str, sql: Sql, tmp_path: Path, kept_spark: KeptSpark, capsys: pytest.CaptureFixture[str]
) -> None:
    with Feed(tmp_path, database, ["public.items"]) as feed:
        feed.once(kept_spark)
        sql.execute("ALTER TABLE items RENAME TO things")
        file = [str(feed.toml), "--state", str(feed.state)]
        assert main(["rescan", *file, "public.things"]) == 2
        assert "has no table 'public.things'" in capsys.readouterr().err
        assert main(["rescan", *file, "public.items", "--where", "id < 4"]) == 0
        assert main(["alter", *file, "--add", "public.o*", "--add", "!*.old", "--no-initial-scan"]) == 0
    with Feed(tmp_path, database, ["public.items", "public.o*", "!*.old"]) as feed:
        feed.once(kept_spark)
        sql.execute("INSERT INTO orders VALUES (600, 0)")
        feed.once(kept_spark)
        (began,) = [found.began for found in ProgressStore(store_url(feed.state)).rescans.of("test")]
        assert later(delivered(tmp_path / "files", "items"), began) == {1, 2, 3}
        assert {row["key"][0] for row in delivered(tmp_path / "files", "orders")} == {600}
        assert main(["alter", str(feed.toml), "--state", str(feed.state), "--drop", "public.items"]) == 0
