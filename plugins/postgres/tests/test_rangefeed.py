"""All parts of the source together on a real server: the log, the scan, and both at once."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from cdc_rangefeed_postgres.lsn import parse_lsn
from cdc_rangefeed_postgres.token import PostgresToken
from cdc_testing.engine import eventually
from cdc_testing.feeding import caught_up, started
from cdc_testing.postgres import Sql, table_of, writing

from cdc_core import Op, RowBatch, StepLimit, TerminalRangefeedError, Timestamp, Token


def test_changes_arrive_in_commit_order_with_their_operations(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with started(database, "t") as feed:
        sql.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        sql.execute("UPDATE t SET v = 'c' WHERE id = 1")
        sql.execute("DELETE FROM t WHERE id = 2")
        feed.catch_up()
        assert [(change.op, change.key, change.after) for change in feed.changes] == [
            (Op.INSERT, (1,), {"id": 1, "v": "a"}),
            (Op.INSERT, (2,), {"id": 2, "v": "b"}),
            (Op.UPDATE, (1,), {"id": 1, "v": "c"}),
            (Op.DELETE, (2,), None),
        ]
        assert feed.changes[0].updated == feed.changes[1].updated < feed.changes[2].updated < feed.changes[3].updated


def test_a_key_change_is_a_delete_and_an_insert_with_one_timestamp(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql.execute("INSERT INTO t VALUES (1, 'a')")
    with started(database, "t") as feed:
        feed.scan()
        sql.execute("UPDATE t SET id = 7 WHERE id = 1")
        feed.catch_up()
        moved = [change for change in feed.changes if change.op is not Op.SCAN]
        assert {(change.op, change.key) for change in moved} == {(Op.DELETE, (1,)), (Op.INSERT, (7,))}
        assert len({change.updated for change in moved}) == 1


def test_scan_and_log_replay_to_the_table_while_it_is_written(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n bigint, pad text)")
    sql.execute("INSERT INTO t SELECT g, 0, repeat('x', 200) FROM generate_series(1, 20000) g")

    def write(connection: Sql, n: int) -> None:
        key = n * 7919 % 25000
        if n % 5 == 0:
            connection.execute("DELETE FROM t WHERE id = %s", [key])
        else:
            connection.execute(
                "INSERT INTO t VALUES (%s, %s, 'new') ON CONFLICT (id) DO UPDATE SET n = excluded.n", [key, n]
            )

    with started(database, "t", options={"scan_round": 0.1, "scan_chunk_size": 100_000}) as feed:
        with writing(database, write):
            feed.scan()
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n, pad FROM t")
        # Rows that were written during the scan are in other blocks by the time when their old blocks are read.
        assert sum(change.op is Op.SCAN for change in feed.changes) > 100


def test_an_idle_source_is_resolved_once_a_second_and_writes_no_log(database: str, sql: Sql, usual_pace: None) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with caught_up(database, "t") as feed:
        steps = feed.steps
        begun = feed.now()
        feed.steps_until(lambda: feed.now().wall - begun.wall > 2_500_000_000)
        assert feed.steps - steps <= 5
        assert feed.latest.wall - begun.wall > 1_000_000_000
        made = sql.execute(
            "SELECT coalesce(sum(w.wal_bytes), 0) FROM pg_stat_activity a, pg_stat_get_backend_wal(a.pid) w "
            "WHERE application_name LIKE %s AND a.application_name NOT LIKE '%%/driver'",
            [f"cdc/%/{feed.context.feed_id}/%"],
        ).fetchone()
        assert made == (0,)


def test_no_row_is_resolved_before_the_scan_of_all_tables_is_complete(database: str, sql: Sql) -> None:
    for name in ("a", "b"):
        sql.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, pad text)")
        sql.execute(f"INSERT INTO {name} SELECT g, repeat('x', 500) FROM generate_series(1, 500) g")
    with started(database, "a", "b", bytes_=100_000) as feed:
        while feed.token["scan"] is not None:
            feed.step()
            assert not any(feed.resolved.values())
        feed.catch_up()
        assert len(feed.rows("public.a")) == len(feed.rows("public.b")) == 500


def test_a_restart_during_the_scan_reads_no_finished_block_again(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    sql.execute("INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, 3000) g")
    with started(database, "t", bytes_=200_000) as feed:
        feed.steps_until(lambda: len(feed.changes) > 1000)
        done = feed.rangefeed.scan_progress(feed.token)
        feed.restart()
        again = feed.rangefeed.scan_progress(feed.token)
        assert done is not None
        assert again == done
        feed.scan()
        feed.catch_up()
        assert sorted(change.key for change in feed.changes) == [(n,) for n in range(1, 3001)]


def test_a_truncate_is_terminal(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with started(database, "t") as feed:
        sql.execute("TRUNCATE t")
        with pytest.raises(TerminalRangefeedError, match=r"table public\.t was truncated"):
            feed.catch_up()


def test_a_step_of_the_log_obeys_the_limit_and_splits_no_transaction(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    with caught_up(database, "t", bytes_=200_000, initial_scan=False) as feed:
        first = feed.steps
        for begin in range(0, 2000, 100):
            sql.execute(
                "INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(%s::int, %s) g", [begin, begin + 99]
            )
        feed.catch_up()
        assert feed.steps - first >= 5
        by_transaction: dict[int, set[int]] = {}
        for change in feed.changes:
            by_transaction.setdefault(change.key[0] // 100, set()).add(change.step)
        assert all(len(steps) == 1 for steps in by_transaction.values())
        assert len(feed.rows("public.t")) == 2000


@pytest.mark.parametrize(("beyond", "included"), [(0, False), (1, True)])
def test_a_step_has_the_transactions_whose_commit_record_begins_before_its_end(
    database: str, sql: Sql, usual_pace: None, beyond: int, included: bool
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with started(database, "t", initial_scan=False) as feed:
        # The start may have seen log that is not durable yet, and no step crosses its end. A commit makes it so.
        sql.execute("INSERT INTO t VALUES (0)")
        feed.catch_up()
        sql.execute("INSERT INTO t VALUES (1)")
        sql.execute("INSERT INTO t VALUES (2)")
        name = f"cdc_test_{feed.context.feed_id}"
        begins = sql.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1', "
            "'publication_names', %s) WHERE get_byte(data, 0) = 66",
            [name, name],
        ).fetchall()
        final_lsn = int.from_bytes(begins[1][0][1:9], "big")
        bytes_ = final_lsn + beyond - parse_lsn(feed.token["lsn"])
        feed.limit = StepLimit(rows=feed.limit.rows, bytes=bytes_)
        feed.step()
        assert parse_lsn(feed.token["lsn"]) == final_lsn + beyond
        assert list(feed.rows("public.t")) == ([(0,), (1,), (2,)] if included else [(0,), (1,)])
        feed.catch_up()
        assert [change.key for change in feed.changes] == [(0,), (1,), (2,)]


def test_a_huge_transaction_is_read_in_bounded_memory(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    with started(database, "t", bytes_=1 << 30, initial_scan=False) as feed:
        sql.execute("INSERT INTO t VALUES (0, 'the first step is a short one')")
        feed.catch_up()
        sql.execute("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 200000) g")
        planned = feed.plan()
        assert planned is not None
        before, rows, greatest = resident_bytes(), 0, 0
        latest = Timestamp()
        for item in feed.reader.read(planned[1][0]):
            if isinstance(item, RowBatch):
                rows += len(item)
                greatest = max(greatest, item.nbytes)
                assert item.latest() >= latest
                latest = item.latest()
        assert rows == 200_000
        assert greatest < 8 << 20
        assert resident_bytes() - before < 120 << 20, "of 200 MB"


def test_only_the_last_version_of_a_transaction_is_a_row(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    with started(database, "t") as feed:
        with sql.transaction():
            sql.execute("INSERT INTO t VALUES (1, 1)")
            sql.execute("UPDATE t SET n = 2")
            sql.execute("SAVEPOINT s")
            sql.execute("UPDATE t SET n = 3")
            sql.execute("ROLLBACK TO s")
        feed.catch_up()
        assert [(change.op, change.after) for change in feed.changes] == [(Op.INSERT, {"id": 1, "n": 2})]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_marks_go_on_while_the_clock_is_behind_them(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with caught_up(database, "t") as feed:
        ahead = Timestamp(feed.now().wall + 3600 * 10**9)
        token = replace(PostgresToken.from_json(feed.token), clock=ahead).to_json()
        found: list[Token] = []

        def moved() -> bool:
            found[:] = [feed.planner.advance(token, after=ahead, limit=feed.limit)]
            return found[0] != token

        eventually(moved, what="a mark")
        clock = PostgresToken.from_json(found[0]).clock
        assert clock is not None
        assert ahead < clock < Timestamp(ahead.wall + 10**6)
