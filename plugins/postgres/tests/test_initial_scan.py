"""The initial scan on a real server: rounds, restarts, rewritten tables, lost snapshots, limits."""

from __future__ import annotations

import os
import re
import resource
import time

import psycopg
import pytest
from cdc_rangefeed_postgres.connection import Server
from cdc_rangefeed_postgres.snapshot import SnapshotMaker
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.feeding import Feed, caught_up, feed_of, started
from cdc_testing.postgres import Sql, table_of, writing

from cdc_core import Op, RetryableRangefeedError


def fill(sql: Sql, rows: int, *, pad: int = 500, name: str = "t") -> None:
    sql.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n bigint NOT NULL DEFAULT 0, pad text)")
    sql.execute(f"INSERT INTO {name} SELECT g, 0, repeat('x', {pad}) FROM generate_series(1, {rows}) g")


def upsert(sql: Sql, n: int) -> None:
    key = n * 7919 % 4000
    sql.execute("INSERT INTO t VALUES (%s, %s, 'new') ON CONFLICT (id) DO UPDATE SET n = excluded.n", [key, n])


def scanned(feed: Feed) -> list[int]:
    return [change.key[0] for change in feed.changes if change.op is Op.SCAN]


@pytest.mark.slow
def test_with_short_rounds_neither_log_nor_snapshots_are_kept_for_long(database: str, sql: Sql) -> None:
    fill(sql, 6000)

    def write(connection: Sql, n: int) -> None:
        connection.execute("UPDATE t SET n = %s, pad = repeat('y', 2000) WHERE id = %s", [n, n % 50 + 1])

    with started(database, "t", options={"scan_round": 0.2, "scan_chunk_size": 24_000}) as feed:
        rounds_of: dict[int, set[int]] = {}  # in which each process that keeps a snapshot was seen
        retained = []
        begun = sql.execute("SELECT pg_current_wal_lsn()").fetchone()
        with writing(database, write):
            while feed.token["scan"] is not None:
                feed.step()
                row = sql.execute(
                    "SELECT ARRAY(SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction' "
                    "        AND application_name LIKE 'cdc/%/snapshot' AND datname = current_database()), "
                    "max(pg_current_wal_lsn() - restart_lsn)::bigint "
                    "FROM pg_replication_slots WHERE database = current_database()"
                ).fetchone()
                assert row is not None
                number = (feed.token["scan"] or {"round": 0})["round"]
                for pid in row[0]:
                    rounds_of.setdefault(pid, set()).add(number)
                retained.append(row[1])
        written = sql.execute("SELECT (pg_current_wal_lsn() - %s::pg_lsn)::bigint", begun).fetchone()
        assert written is not None
        assert len(set().union(*rounds_of.values())) >= 4
        assert max(map(len, rounds_of.values())) <= 3  # one is taken while the one before it is read
        assert max(retained) < max(16 << 20, written[0] // 2)
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n, pad FROM t")


@pytest.mark.parametrize(
    "rewrite", ["VACUUM FULL t", "CLUSTER t USING t_pkey", "ALTER TABLE t ALTER COLUMN n TYPE int"]
)
def test_the_scan_of_a_rewritten_table_starts_again(database: str, sql: Sql, rewrite: str) -> None:
    fill(sql, 3000)
    sql.execute("DELETE FROM t WHERE id % 3 = 0")
    with started(database, "t", bytes_=200_000) as feed:
        feed.steps_until(lambda: len(scanned(feed)) > 500)
        sql.execute(rewrite)
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n, pad FROM t")


def test_the_reader_notices_a_rewrite_after_planning(database: str, sql: Sql) -> None:
    fill(sql, 3000)
    with started(database, "t", bytes_=200_000) as feed:
        feed.steps_until(lambda: len(scanned(feed)) > 500)
        slices = feed.slices()
        sql.execute("VACUUM FULL t")
        with pytest.raises(RetryableRangefeedError, match=r"table public\.t was rewritten during its scan") as raised:
            list(feed.reader.read(slices[0]))
        assert not raised.value.outage, "tried again without end if it were"
        feed.restart()
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n, pad FROM t")


def test_a_table_rewritten_after_its_scan_is_not_read_again(database: str, sql: Sql) -> None:
    fill(sql, 1000, name="a")
    fill(sql, 1000, name="b")
    with started(database, "a", "b", bytes_=100_000) as feed:
        feed.steps_until(lambda: any(change.table == "public.b" for change in feed.changes))
        sql.execute("VACUUM FULL a")
        feed.catch_up()
        assert sorted(change.key for change in feed.changes if change.table == "public.a") == [
            (n,) for n in range(1, 1001)
        ]


def test_after_a_lost_snapshot_a_new_round_reads_no_block_again(database: str, sql: Sql) -> None:
    fill(sql, 3000)
    with started(database, "t", bytes_=200_000) as feed:
        feed.steps_until(lambda: len(scanned(feed)) > 500)
        slices = feed.slices()
        sql.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name LIKE 'cdc/%/snapshot'"
        )
        with pytest.raises(RetryableRangefeedError, match="scan: the snapshot of this round is gone") as raised:
            list(feed.reader.read(slices[0]))
        assert not raised.value.outage, "tried again without end if it were"
        feed.catch_up()
        assert sorted(scanned(feed)) == list(range(1, 3001))


@pytest.mark.slow
def test_restarts_during_a_scan_with_writes_read_every_block_once(database: str, sql: Sql) -> None:
    fill(sql, 6000)
    with started(database, "t", options={"scan_round": 0.1, "scan_chunk_size": 48_000}) as feed:
        with writing(database, upsert, pause_s=0.005):
            for _ in range(4):
                for _ in range(5):
                    feed.step()
                done = feed.rangefeed.scan_progress(feed.token)
                feed.restart()
                assert feed.rangefeed.scan_progress(feed.token) == done
            feed.scan()
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n, pad FROM t")
        # A row that moves during the scan may be read in its old and in its new block, but no block is read twice.
        untouched = [key for key in scanned(feed) if key > 4000]
        assert sorted(untouched) == list(range(4001, 6001))


def test_a_long_write_transaction_does_not_stop_the_log(database: str, sql: Sql) -> None:
    fill(sql, 1000)
    with (
        started(database, "t", bytes_=100_000, options={"snapshot_wait": 3}) as feed,
        psycopg.connect(database) as other,
    ):
        other.execute("UPDATE t SET n = 5 WHERE id = 1")
        sql.execute("UPDATE t SET n = 6 WHERE id = 2")
        feed.steps_until(lambda: (2,) in feed.rows("public.t"))
        assert feed.token["scan"]["done"] == 0
        assert not any(feed.resolved.values())
        other.commit()
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n, pad FROM t")


def test_a_round_that_is_over_continues_until_there_is_a_new_snapshot(database: str, sql: Sql) -> None:
    fill(sql, 1000)
    with (
        started(database, "t", options={"scan_round": 0.05, "scan_chunk_size": 32_000}) as feed,
        psycopg.connect(database) as other,
    ):
        feed.steps_until(lambda: len(scanned(feed)) > 0)
        other.execute("UPDATE t SET n = 5 WHERE id = 1")
        seen = len(feed.changes)
        begun = time.monotonic()
        feed.scan()
        assert time.monotonic() - begun < 120
        assert len({change.updated for change in feed.changes[seen:] if change.op is Op.SCAN}) == 1
        other.commit()
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n, pad FROM t")


def test_a_step_of_the_scan_obeys_the_limit_and_has_a_slice_for_each_task(database: str, sql: Sql) -> None:
    fill(sql, 4000)
    with started(database, "t", bytes_=400_000, parallelism=4) as feed:
        sizes = []
        while feed.token["scan"] is not None:
            planned = feed.plan()
            assert planned is not None
            if planned[0]["scan"] is None or planned[0]["scan"]["done"] > feed.token["scan"]["done"]:
                sizes.append(len(planned[1]))
            feed.step()
        assert len(sizes) > 2
        assert all(4 <= size <= 5 for size in sizes[:-1])
        by_step: dict[int, int] = {}
        for change in feed.changes:
            by_step[change.step] = by_step.get(change.step, 0) + len(change.after["pad"]) if change.after else 0
        assert max(by_step.values()) < 450_000


def test_a_process_with_thousands_of_open_files_can_scan(database: str, sql: Sql) -> None:
    fill(sql, 2000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    files = [os.dup(0) for _ in range(2000)]
    try:
        with started(database, "t", bytes_=200_000) as feed:
            feed.scan()
            assert sorted(scanned(feed)) == list(range(1, 2001))
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_changed_before_the_first_snapshot_comes_before_the_scan(database: str, sql: Sql) -> None:
    fill(sql, 100)
    with started(database, "t") as feed:
        upsert(sql, 1)
        while not feed.changes:
            feed.step()
        assert [change.op for change in feed.changes] == [Op.INSERT]
        feed.scan()
        assert len(scanned(feed)) == 101


def test_rows_of_a_scan_that_was_never_saved_are_older_than_the_log_that_the_next_attempt_reads(
    database: str, sql: Sql
) -> None:
    fill(sql, 10)
    with started(database, "t") as feed:
        lost = feed.plan_scan()[0]  # such as: delivered, but the driver was killed before it saved the step
        sql.execute("DELETE FROM t WHERE id = 1")
        feed.restart()
        slices = feed.slices()
        assert slices[0].lower >= lost.lower, "files of the later attempt have later names"
        feed.steps_until(lambda: bool(feed.changes))
        assert feed.changes[0].op is Op.DELETE
        assert feed.changes[0].updated > lost.payload.at


@pytest.mark.skipif(psycopg.pq.version() < 180000, reason="libpq does not trace what refuses a login")
def test_a_scan_without_a_free_connection_waits_and_names_the_limits(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    fill(sql, 10)
    with feed_of(database, "t") as feed:
        maker = SnapshotMaker(Server(feed.context), "cdc_test", limit_s=60.0)
        sql.execute(f"ALTER DATABASE {sql.info.dbname} CONNECTION LIMIT 0")
        maker.request()
        assert maker.fetch(60.0) is None
        assert maker.full
        sql.execute(f"ALTER DATABASE {sql.info.dbname} CONNECTION LIMIT -1")
    expected = "no snapshot: too many connections for database .*; raise max_connections, .* CONNECTION LIMIT"
    assert re.search(expected, caplog.text)


def test_a_scan_completes_with_one_free_slot_for_its_rounds() -> None:
    settings = {"fsync": "off", "max_replication_slots": "2"}
    with CopiedPostgres(settings=settings) as server, psycopg.connect(server.uri(), autocommit=True) as sql:
        fill(sql, 1000)
        with started(server.uri(), "t", options={"scan_round": 0.05, "scan_chunk_size": 16_000}) as feed:
            feed.scan()
            assert sorted(scanned(feed)) == list(range(1, 1001))
            assert len({change.updated for change in feed.changes}) > 1


def test_the_wait_for_a_locked_table_ends_after_lock_timeout(database: str, sql: Sql) -> None:
    fill(sql, 1000)
    with started(database, "t", options={"lock_timeout": 0.2}) as feed, psycopg.connect(database) as other:
        slices = feed.plan_scan()
        other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(RetryableRangefeedError, match="lock timeout"):
            list(feed.reader.read(slices[0]))
        feed.restart()
        feed.step()
        assert scanned(feed) == []
        other.rollback()
        feed.scan()
        assert sorted(scanned(feed)) == list(range(1, 1001))


def test_no_transaction_is_open_after_the_scan(database: str, sql: Sql) -> None:
    fill(sql, 1000)
    with caught_up(database, "t") as feed:
        busy = (
            "SELECT application_name, state, query FROM pg_stat_activity WHERE application_name LIKE 'cdc/%' "
            "AND state <> 'idle' AND datname = current_database()"
        )
        feed.steps_until(lambda: sql.execute(busy).fetchall() == [])


def test_a_planner_that_waits_for_a_snapshot_can_be_closed(database: str, sql: Sql) -> None:
    fill(sql, 10)
    with started(database, "t") as feed, psycopg.connect(database) as other:
        other.execute("UPDATE t SET n = 5 WHERE id = 1")
        feed.step()
        begun = time.monotonic()
        feed.planner.close()
        assert time.monotonic() - begun < 120
        left = "SELECT count(*) FROM pg_replication_slots WHERE temporary AND database = current_database()"
        assert sql.execute(left).fetchone() == (0,)
