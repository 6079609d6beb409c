"""`cdc_core.watch`: messages of whole tables without Spark, a sink and saved progress, and nothing that remains."""

from __future__ import annotations

import gc
import hmac
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_conformance.simulated.reader import SimulatedReader
from cdc_encoder_json.encoder import JsonEncoder
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed
from cdc_rangefeed_postgres.scan_rounds import ScanRounds
from cdc_rangefeed_postgres.snapshot import SnapshotMaker
from cdc_testing.documented_role import documented
from cdc_testing.imports import loaded_by
from cdc_testing.postgres import Sql, clock, table_of
from cdc_testing.runs import eventually

from cdc_core import Changefeed, ConfigError, HistoryLostError, OptionError, watch
from cdc_core.config.resolve import resolve_without_sink
from cdc_core.engine.temporary_run import TemporaryRun, WholeRows, temporary
from cdc_core.errors import BadRowError, RetryableError
from cdc_core.plugins.host import PluginHost
from cdc_core.watching.watch import Watch, WatchedRow

ONLY = {"initial_scan": "only"}


@pytest.fixture
def sql(sql: Sql) -> Sql:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql.execute("INSERT INTO t SELECT g, 'a' FROM generate_series(1, 3) g")
    return sql


def left(sql: Sql) -> list[str]:
    """Return what is at the source: slots, publications and advisory locks."""
    found = sql.execute(
        "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()"
        " UNION ALL SELECT pubname::text FROM pg_publication"
        " UNION ALL SELECT 'lock' FROM pg_locks WHERE locktype = 'advisory'"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchall()
    return [name for (name,) in found]


def nothing_is_left(sql: Sql) -> None:
    eventually("the end of the connections", lambda: not left(sql))


def state_of(rows: list[WatchedRow]) -> dict[tuple[Any, ...], Any]:
    """Return the rows that a consumer has after *rows*."""
    found: dict[tuple[Any, ...], Any] = {}
    for row in rows:
        if row.key is not None:
            found[tuple(json.loads(row.key))] = json.loads(row.value or b"null")["after"]
    return {key: after for key, after in found.items() if after is not None}


def test_messages_are_those_of_a_changefeed_without_a_sink(database: str, sql: Sql) -> None:
    with watch(source=documented(database), tables=["t"], options={"resolved": True, "updated": True}) as rows:
        scanned = [next(rows) for _ in range(3)]
        assert scanned[0].table == "t"
        assert [row.key for row in scanned] == [b"[1]", b"[2]", b"[3]"]
        assert json.loads(scanned[0].value or b"")["after"] == {"id": 1, "v": "a"}
        assert left(sql), "the run has a slot"
        sql.execute("UPDATE t SET v = 'b' WHERE id = 2")
        sql.execute("DELETE FROM t WHERE id = 1")
        seen: list[WatchedRow] = []
        while sum(row.key is not None for row in seen) < 2 or seen[-1].key is not None:
            seen.append(next(rows))
        changes = [row for row in seen if row.key is not None]
        assert [json.loads(row.value or b"")["after"] for row in changes] == [{"id": 2, "v": "b"}, None]
        mark = seen[-1]
        assert (mark.table, mark.key) == (None, None)
        updated = json.loads(changes[-1].value or b"")["updated"]
        assert json.loads(mark.value or b"")["resolved"] >= updated
    nothing_is_left(sql)
    assert list(rows) == []


def test_a_scan_ends_by_itself_and_leaves_nothing(database: str, sql: Sql) -> None:
    rows = list(watch(source=documented(database), tables=["t"], options=ONLY))
    assert state_of(rows) == {(number,): {"id": number, "v": "a"} for number in (1, 2, 3)}
    nothing_is_left(sql)


def test_an_end_time_ends_it_with_everything_before(database: str, sql: Sql) -> None:
    for number, limit_s in ((9, 2), (10, 20), (11, 200)):  # a busy machine is too slow for the first ones
        end = clock(database).wall + limit_s * 1_000_000_000
        options = {"end_time": str(end), "initial_scan": "no", "resolved": True}
        rows = watch(source=documented(database), tables=["t"], options=options)
        seen = [next(rows)]
        sql.execute("INSERT INTO t VALUES (%s, 'late')", [number])
        in_time = clock(database).wall < end
        seen += rows
        if in_time:
            break
    assert in_time
    assert state_of(seen) == {(number,): {"id": number, "v": "late"}}
    assert json.loads(seen[-1].value or b"") == {"resolved": f"{end}.0000000000"}


def test_a_consumer_that_fails_or_forgets_leaves_nothing(database: str, sql: Sql) -> None:
    def fail() -> None:
        with watch(source=documented(database), tables=["t"]) as rows:
            raise LookupError(next(rows))

    with pytest.raises(LookupError):
        fail()
    nothing_is_left(sql)
    next(watch(source=documented(database), tables=["t"]))
    gc.collect()
    nothing_is_left(sql)


def test_another_thread_may_close_it(database: str, sql: Sql) -> None:
    rows = watch(source=documented(database), tables=["t"], options={"initial_scan": "no"})
    seen: list[WatchedRow] = []
    thread = threading.Thread(target=lambda: seen.extend(rows))
    thread.start()
    eventually("the run", lambda: len(left(sql)) >= 2)
    rows.close()
    thread.join(400)
    assert not thread.is_alive()
    assert seen == []
    nothing_is_left(sql)


def test_a_killed_process_leaves_nothing(database: str, sql: Sql) -> None:
    code = "import cdc_core, sys\nfor row in cdc_core.watch(source=sys.argv[1], tables=['t']): print(row, flush=True)"
    child = subprocess.Popen([sys.executable, "-c", code, documented(database)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert b"WatchedRow" in child.stdout.readline()
    assert len(left(sql)) >= 3
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    nothing_is_left(sql)


def test_what_a_killed_server_kept_is_dropped_by_the_next_run(database: str, sql: Sql) -> None:
    name = "cdc_watch_temporary_0123456789ab"
    sql.execute(f"CREATE PUBLICATION {name} FOR TABLE t")
    sql.execute(f"COMMENT ON PUBLICATION {name} IS 'changefeed watch temporary'")
    sql.execute("CREATE PUBLICATION cdc_watch_temporary_ba9876543210 FOR TABLE t")
    list(watch(source=documented(database), tables=["t"], options=ONLY))
    eventually("the end", lambda: left(sql) == ["cdc_watch_temporary_ba9876543210"])


def test_runs_do_not_drop_what_others_that_are_alive_have(database: str, sql: Sql) -> None:
    with watch(source=documented(database), tables=["t"]) as first:
        next(first)
        assert len(list(watch(source=documented(database), tables=["t"], options=ONLY))) == 3
        sql.execute("INSERT INTO t VALUES (4, 'd')")
        assert [next(first).key for _ in range(3)][-1] == b"[4]"


def test_rows_that_move_before_the_snapshot_of_a_scan_are_not_missed(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks to read are counted before the snapshot: what moves to later ones must come from the log."""
    sql.execute("CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (1) TO (10)")
    sql.execute("CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)")
    sql.execute("INSERT INTO p VALUES (1, 'a'), (2, 'a')")
    sql.execute("INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(4, 200) g")
    moved: list[bool] = []
    request = SnapshotMaker.request

    def move_and_request(maker: SnapshotMaker) -> None:
        if not moved:
            moved.append(True)
            sql.execute("UPDATE t SET v = repeat('y', 500) WHERE id % 2 = 0")
            sql.execute("INSERT INTO p VALUES (11, 'in a partition that was empty')")
            sql.execute("CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30)")
            sql.execute("INSERT INTO p VALUES (21, 'in a new partition')")
        request(maker)

    monkeypatch.setattr(SnapshotMaker, "request", move_and_request)
    rows = list(watch(source=documented(database), tables=["t", "p"], options={**ONLY, "full_table_name": True}))
    assert moved
    for table in ("t", "p"):
        mine = [row for row in rows if (row.table or "").endswith(f".{table}")]
        assert state_of(mine) == table_of(sql, f"SELECT id, v FROM {table}"), table


def test_a_consumer_that_takes_no_rows_holds_back_the_source(database: str, sql: Sql) -> None:
    sql.execute("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(10, 20000) g")
    taken: list[int] = []

    class Counting(WholeRows):
        def of(self, rows: Any) -> Any:
            taken.append(len(rows))
            return super().of(rows)

    options = {**ONLY, "fetch_size": "64KB"}
    feed = resolve_without_sink(
        Changefeed(name="w", source=documented(database), tables=("t",), options=options), PluginHost.load()
    )
    items = TemporaryRun(temporary(feed), evaluation=Counting(), check=lambda _: None).items()
    for number in range(1, 4):
        next(items)
        assert len(taken) == number, "a batch was read that nobody asked for"
    items.close()
    assert sum(taken) < 5000
    nothing_is_left(sql)


def test_a_failure_that_a_retry_cures_repeats_the_step(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[bool] = []
    use = ScanRounds.use

    def lose_the_connections(rounds: ScanRounds) -> None:
        if not failed:
            failed.append(True)
            sql.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name ~ '/(planner|scan)$'"
            )
        use(rounds)

    monkeypatch.setattr(ScanRounds, "use", lose_the_connections)
    options = {**ONLY, "retry_backoff": "10ms"}
    assert state_of(list(watch(source=documented(database), tables=["t"], options=options))).keys() == {
        (1,),
        (2,),
        (3,),
    }
    assert failed


def test_a_failure_of_the_first_start_or_of_the_encoder_is_retried_and_outages_do_not_count(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = {"start": 3, "encode": 3}

    def failing_at_first(what: str, original: Any) -> Any:
        def attempt(*args: Any, **named: Any) -> Any:
            if failing[what]:
                failing[what] -= 1
                raise RetryableError(f"{what} fails")
            return original(*args, **named)

        return attempt

    monkeypatch.setattr(PostgresRangefeed, "start", failing_at_first("start", PostgresRangefeed.start))
    monkeypatch.setattr(JsonEncoder, "encode", failing_at_first("encode", JsonEncoder.encode))
    options = {**ONLY, "retry_backoff": "1ms", "max_attempts": 2}
    assert len(list(watch(source=documented(database), tables=["t"], options=options))) == 3
    assert failing == {"start": 0, "encode": 0}


@pytest.mark.parametrize("is_gone", [False, True], ids=["with its publication", "without"])
def test_a_lost_slot_is_an_error_and_not_a_gap(database: str, sql: Sql, is_gone: bool) -> None:
    with watch(source=documented(database), tables=["t"], options={"retry_backoff": "10ms"}) as rows:
        for _ in range(3):
            next(rows)
        sql.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE '%/temporary'"
        )
        sql.execute("INSERT INTO t VALUES (4, 'd')")
        if is_gone:
            ((name,),) = sql.execute("SELECT pubname FROM pg_publication").fetchall()
            sql.execute(f"DROP PUBLICATION {name}")
        with pytest.raises(HistoryLostError, match=r"Start again|no longer exists"):
            next(rows)
    nothing_is_left(sql)


def test_a_slot_that_was_made_beforehand_is_read_and_stays_where_it_is(database: str, sql: Sql) -> None:
    sql.execute("CREATE PUBLICATION mine FOR TABLE t WITH (publish_via_partition_root = true)")
    sql.execute("SELECT pg_create_logical_replication_slot('mine', 'pgoutput')")
    try:
        sql.execute("INSERT INTO t VALUES (4, 'd')")
        before = sql.execute("SELECT confirmed_flush_lsn FROM pg_replication_slots").fetchall()
        options = {"slot_name": "mine", "publication_name": "mine", "initial_scan": "no"}
        with watch(source=documented(database), tables=["t"], options=options) as rows:
            assert next(rows).key == b"[4]"
            sql.execute("INSERT INTO t VALUES (5, 'e')")
            assert next(rows).key == b"[5]"
        cursors = {
            "0/1": "the position of replication slot mine,",
            "2020-01-01T00:00:00Z": "the first transaction of replication slot mine,",
        }
        for cursor, words in cursors.items():
            early = watch(source=documented(database), tables=["t"], options=options | {"cursor": cursor})
            with early, pytest.raises(ConfigError, match=words):
                next(early)
        eventually("the end of the copy", lambda: sorted(left(sql)) == ["mine", "mine"])
        assert sql.execute("SELECT confirmed_flush_lsn FROM pg_replication_slots").fetchall() == before
    finally:
        sql.execute("SELECT pg_drop_replication_slot('mine')")


def test_the_sink_of_a_changefeed_is_checked_and_not_used(database: str, sql: Sql) -> None:
    feed = Changefeed(
        name="orders",
        source=documented(database),
        tables=("t",),
        sink="kafka://localhost:1",
        options={**ONLY, "topic_prefix": "shop_"},
    )
    assert [row.table for row in watch(feed)] == ["t"] * 3
    wrong = Changefeed(name="orders", source=documented(database), tables=("t",), sink="kafka://localhost:1?colour=red")
    with pytest.raises(OptionError, match="colour"):
        watch(wrong)


@contextmanager
def refused(text: str) -> Iterator[None]:
    with pytest.raises(ConfigError, match=text):
        yield


def test_what_cannot_be_watched_is_said_at_once(database: str, sql: Sql) -> None:
    with refused("needs a changefeed, or a source"):
        watch()
    feed = Changefeed(name="a", source=documented(database), tables=("t",))
    with refused("not both"):
        watch(feed, source=documented(database))
    with refused("needs messages, which encoder 'parquet' does not write"):
        watch(source=documented(database), tables=["t"], format="parquet", options=ONLY)
    with refused("no table 'absent'|absent"):
        next(watch(source=documented(database), tables=["absent"]))
    sql.execute("CREATE SCHEMA other")
    sql.execute("CREATE TABLE other.t (id int PRIMARY KEY)")
    with refused("would have the same topic; set option full_table_name"):
        next(watch(source=documented(database), tables=["public.t", "other.t"]))
    assert left(sql) == []


def test_a_simulated_database_is_watched_too(tmp_path: Any) -> None:
    database = SimulatedDatabase.create(tmp_path / "database")
    database.create_table("t")
    uri = f"simulated://{tmp_path}/database"
    with watch(source=uri, tables=["t"], options={"resolved": True}) as rows:
        while next(rows).key is not None:
            pass
        assert database.protected()
    assert not database.protected()


def test_a_step_that_fails_again_and_again_ends_it_after_max_attempts(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    SimulatedDatabase.create(tmp_path / "database").create_table("t")
    reasons = iter(["a torn page", "a lost lock", "a full disk", "a stale lease"])

    def fail(*_: Any) -> Any:
        raise RetryableError(next(reasons), outage=False)

    monkeypatch.setattr(SimulatedReader, "read", fail)
    options = {**ONLY, "retry_backoff": "1ms", "max_attempts": 3}
    with pytest.raises(RetryableError, match="a full disk"):
        list(watch(source=f"simulated://{tmp_path}/database", tables=["t"], options=options))


def test_importing_the_core_for_watch_loads_neither_spark_nor_a_client() -> None:
    found = loaded_by("import cdc_core; cdc_core.watch")
    assert not found & {"pyspark", "py4j", "psycopg"}


def test_a_watch_that_was_never_started_reads_nothing() -> None:
    rows = watch(source="postgresql://nobody@127.0.0.1:1/nowhere", tables=["t"])
    assert isinstance(rows, Watch)
    rows.close()
    assert list(rows) == []


def test_a_section_masks_what_is_watched_without_spark(database: str, sql: Sql) -> None:
    sections = {"t": {"columns": {"include": ["id", "v"]}, "mask": {"v": "hash"}}}
    options = {**ONLY, "mask_key": "a-key-of-many-characters"}
    changefeed = Changefeed(name="c", source=documented(database), tables=("t",), table=sections, options=options)
    with watch(changefeed) as rows:
        found = [json.loads(row.value)["after"] for row in rows]
    digest = hmac.new(b"a-key-of-many-characters", b"a", "sha256").hexdigest()
    assert found == [{"id": number, "v": digest} for number in (1, 2, 3)]
    options["max_row_bytes"] = "1KB"
    sql.execute("UPDATE t SET v = repeat('SECRET', 1000) WHERE id = 1")
    with pytest.raises(BadRowError) as refused, watch(changefeed) as rows:
        list(rows)
    assert "SECRET" not in str(refused.value)
