"""The whole source on a real server: the log, the scan, and both together."""

from __future__ import annotations

import pytest
from cdc_testing.feeding import feed_of
from cdc_testing.postgres import Sql, table_of, writing

from cdc_core import Op, TerminalRangefeedError


def test_changes_arrive_in_commit_order_with_their_operations(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with feed_of(database, "t") as feed:
        feed.start()
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


def test_a_key_change_is_a_delete_and_an_insert_of_one_time(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql.execute("INSERT INTO t VALUES (1, 'a')")
    with feed_of(database, "t") as feed:
        feed.start()
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

    with feed_of(database, "t", options={"scan_round": 0.1, "scan_chunk_size": 100_000}) as feed:
        feed.start()
        with writing(database, write):
            feed.scan()
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n, pad FROM t")
        assert sum(change.op is Op.SCAN for change in feed.changes) > 10_000


def test_an_idle_source_resolves_once_a_second_and_makes_no_log_of_its_own(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with feed_of(database, "t") as feed:
        feed.start()
        feed.catch_up()
        steps = feed.steps
        begun = feed.driver.now()
        feed.steps_until(lambda: feed.driver.now().wall - begun.wall > 2_500_000_000)
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
    with feed_of(database, "a", "b", bytes_=100_000) as feed:
        feed.start()
        while feed.token["scan"] is not None:
            feed.step()
            assert not any(feed.resolved.values())
        feed.catch_up()
        assert len(feed.rows("public.a")) == len(feed.rows("public.b")) == 500


def test_a_restart_in_mid_scan_reads_no_finished_chunk_again(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    sql.execute("INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, 3000) g")
    with feed_of(database, "t", bytes_=200_000) as feed:
        feed.start()
        feed.steps_until(lambda: len(feed.changes) > 1000)
        done = feed.driver.scan_progress(feed.token)
        feed.restart()
        again = feed.driver.scan_progress(feed.token)
        assert done is not None
        assert again == done
        feed.scan()
        feed.catch_up()
        assert sorted(change.key for change in feed.changes) == [(n,) for n in range(1, 3001)]


def test_a_truncate_is_terminal(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with feed_of(database, "t") as feed:
        feed.start()
        sql.execute("TRUNCATE t")
        with pytest.raises(TerminalRangefeedError, match=r"table public\.t was truncated"):
            feed.catch_up()


def test_a_dropped_table_is_terminal(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with feed_of(database, "t") as feed:
        feed.start()
        sql.execute("DROP TABLE t")
        with pytest.raises(TerminalRangefeedError, match=r"table public\.t was dropped"):
            feed.steps_until(lambda: False)
