"""Patterns in `tables`: which tables match, and what happens when tables come and go while a changefeed runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import psycopg
import pytest
from cdc_testing.feeding import Feed, caught_up, feed_of, started
from cdc_testing.postgres import Sql, table_of

from cdc_core import ConfigError, Op, RestartError, TerminalRangefeedError


@pytest.fixture(autouse=True)
def tables(sql: Sql) -> None:
    for name in ("a1", "a2", "b1"):
        sql.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
        sql.execute(f"INSERT INTO {name} SELECT g, '{name}' FROM generate_series(1, 100) g")


@pytest.fixture
def feed(database: str) -> Iterator[Feed]:
    """A changefeed of `public.a*` that has caught up."""
    with caught_up(database, "public.a*") as feed:
        yield feed


def attempts(feed: Feed) -> list[str]:
    """Run attempts until one catches up; return the errors that ended the earlier ones."""
    ended: list[RestartError] = []
    while len(ended) < 10:
        try:
            feed.catch_up()
            break
        except RestartError as error:
            ended.append(error)
            feed.restart()
    return [str(error) for error in ended]


def leave(feed: Feed, sql: Sql, table: str, *, update: str = "a1") -> None:
    """Run until the attempt ends because a table that was dropped leaves, and begin another one."""

    def write() -> bool:
        sql.execute(f"UPDATE {update} SET v = 'after' WHERE id = 2")
        return False

    with pytest.raises(RestartError, match=f"stopped following dropped tables: {table}"):
        feed.steps_until(write)
    feed.restart()


def followed(feed: Feed) -> set[str]:
    return set(feed.token["tables"])


def published(sql: Sql) -> set[str]:
    return {row[0] for row in sql.execute("SELECT tablename::text FROM pg_publication_tables")}


def test_tables_that_match_are_followed_beside_those_that_are_listed(database: str, sql: Sql) -> None:
    sql.execute("CREATE VIEW a_view AS SELECT 1")
    sql.execute("CREATE TABLE a_parts (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE a_part PARTITION OF a_parts FOR VALUES FROM (0) TO (9)")
    with caught_up(database, "b1", "a*", "!a2", checked=True) as feed:
        assert followed(feed) == {"public.b1", "public.a1", "public.a_parts"}
        assert published(sql) == {"b1", "a1", "a_parts"}
        assert feed.rows("public.a1") == table_of(sql, "SELECT * FROM a1")


def test_a_table_that_is_created_and_filled_in_one_transaction_arrives_whole(feed: Feed, sql: Sql) -> None:
    with sql.transaction():
        sql.execute("CREATE TABLE a3 AS SELECT g AS id, 'new' AS v FROM generate_series(1, 50) g")
        sql.execute("ALTER TABLE a3 ADD PRIMARY KEY (id)")
    sql.execute("UPDATE a3 SET v = 'changed' WHERE id = 7")
    assert attempts(feed) == ["new tables matched: public.a3; starting their initial scan"]
    sql.execute("DELETE FROM a3 WHERE id = 8")
    assert attempts(feed) == []
    assert feed.rows("public.a3") == table_of(sql, "SELECT * FROM a3")
    assert {change.table for change in feed.changes if change.op is Op.SCAN and change.step > 5} <= {"public.a3"}


def test_nothing_is_resolved_between_the_creation_of_a_table_and_its_last_row(database: str, sql: Sql) -> None:
    with caught_up(database, "a*", bytes_=100_000) as feed:
        created = feed.now()
        sql.execute("CREATE TABLE a3 (id int PRIMARY KEY, pad text)")
        sql.execute("INSERT INTO a3 SELECT g, repeat('x', 500) FROM generate_series(1, 2000) g")
        with pytest.raises(RestartError, match=r"new tables matched.*: public\.a3"):
            feed.catch_up()
        feed.restart()
        before = dict(feed.resolved)
        assert max(before.values()) <= created
        while feed.token["scan"] is not None:
            assert feed.resolved == before
            feed.step()
        feed.catch_up()
        assert feed.rows("public.a3") == table_of(sql, "SELECT * FROM a3")


def test_a_table_that_is_created_during_the_initial_scan_joins_after_it(database: str, sql: Sql) -> None:
    sql.execute("INSERT INTO a1 SELECT g, repeat('x', 500) FROM generate_series(101, 2000) g")
    with started(database, "a*", bytes_=100_000) as feed:
        feed.steps_until(lambda: len(feed.changes) > 500)
        sql.execute("CREATE TABLE a3 (id int PRIMARY KEY)")
        sql.execute("INSERT INTO a3 SELECT generate_series(1, 2000)")
        with pytest.raises(RestartError, match=r"new tables matched.*: public\.a3"):
            feed.steps_until(lambda: False)
        assert feed.rows("public.a1") == table_of(sql, "SELECT * FROM a1")
        assert not any(feed.resolved.values())
        feed.restart()
        feed.catch_up()
        assert feed.rows("public.a3") == table_of(sql, "SELECT * FROM a3")


def test_a_table_that_joins_is_read_without_an_initial_scan_too(database: str, sql: Sql) -> None:
    with caught_up(database, "a*", initial_scan=False) as feed:
        assert not feed.changes
        sql.execute("CREATE TABLE a3 (id int PRIMARY KEY)")
        sql.execute("INSERT INTO a3 VALUES (1)")
        assert len(attempts(feed)) == 1
        assert [(change.table, change.key) for change in feed.changes] == [("public.a3", (1,))]


def test_tables_that_are_created_all_the_time_do_not_stop_the_changes_of_others(feed: Feed, sql: Sql) -> None:
    for number in range(3, 6):
        sql.execute(f"CREATE TABLE a{number} (id int PRIMARY KEY)")
        with pytest.raises(RestartError, match=f"new tables matched.* public.a{number}"):
            feed.steps_until(lambda: False)
        sql.execute("UPDATE a1 SET v = %s WHERE id = 1", [str(number)])
        feed.restart()
        sql.execute(f"CREATE TABLE a{number}_more (id int PRIMARY KEY)")
        feed.step()
        feed.steps_until(lambda number=number: feed.rows("public.a1")[(1,)]["v"] == str(number))  # type: ignore[misc]
    attempts(feed)
    assert len(followed(feed)) == 8


def test_tables_that_come_and_go_while_the_changefeed_is_stopped(feed: Feed, sql: Sql) -> None:
    feed.close()
    sql.execute("UPDATE a2 SET v = 'last words'")
    sql.execute("DROP TABLE a2")
    sql.execute("CREATE TABLE a3 (id int PRIMARY KEY)")
    sql.execute("INSERT INTO a3 VALUES (1)")
    feed.restart()
    leave(feed, sql, "public.a2")
    assert followed(feed) == {"public.a1", "public.a3"}
    assert {row["v"] for row in feed.rows("public.a2").values()} == {"last words"}
    assert feed.rows("public.a3") == {(1,): {"id": 1}}


def test_a_dropped_table_leaves_after_its_log_is_delivered(feed: Feed, sql: Sql) -> None:
    sql.execute("UPDATE a2 SET v = 'last words'")
    sql.execute("DROP TABLE a2")
    sql.execute("UPDATE a1 SET v = 'after' WHERE id = 1")
    leave(feed, sql, "public.a2")
    feed.catch_up()
    assert followed(feed) == {"public.a1"}
    assert {row["v"] for row in feed.rows("public.a2").values()} == {"last words"}
    assert feed.rows("public.a1") == table_of(sql, "SELECT * FROM a1")


def test_a_table_that_is_dropped_in_the_middle_of_its_scan_leaves(database: str, sql: Sql) -> None:
    sql.execute("INSERT INTO a1 SELECT g, repeat('x', 500) FROM generate_series(101, 2000) g")
    with started(database, "a*", bytes_=100_000) as feed:
        feed.steps_until(lambda: len(feed.changes) > 500)
        sql.execute("DROP TABLE a1")
        leave(feed, sql, "public.a1", update="a2")
        feed.catch_up()
        assert followed(feed) == {"public.a2"}
        assert feed.rows("public.a2") == table_of(sql, "SELECT * FROM a2")


def test_a_table_without_a_key_is_refused_at_the_first_start(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE a3 (id int)")
    with (
        feed_of(database, "a*") as feed,
        pytest.raises(ConfigError, match=r"a3 has no primary key.*; or exclude the table: add '!public\.a3'"),
    ):
        feed.rangefeed.check()
    with feed_of(database, "a*", "!public.a3") as feed:
        feed.rangefeed.check()


def test_a_later_table_without_a_key_is_left_out_until_it_has_one(
    feed: Feed, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    sql.execute("CREATE TABLE a3 (id int)")
    sql.execute("INSERT INTO a3 VALUES (1)")
    assert attempts(feed) == []
    sql.execute("UPDATE a1 SET v = 'meanwhile'")
    assert attempts(feed) == []
    (told,) = [record.message for record in caplog.records if "a3" in record.message]
    assert "has no primary key" in told
    assert "Until then the table is skipped" in told
    feed.restart()
    assert attempts(feed) == []
    sql.execute("ALTER TABLE a3 ADD PRIMARY KEY (id)")
    assert len(attempts(feed)) == 1
    assert feed.rows("public.a3") == {(1,): {"id": 1}}


def test_a_later_table_of_another_owner_is_left_out_until_an_owner_publishes_it(
    feed: Feed, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    sql.execute("CREATE TABLE a3 (id int PRIMARY KEY)")
    sql.execute("INSERT INTO a3 VALUES (1)")
    sql.execute("ALTER TABLE a3 OWNER TO postgres")
    assert attempts(feed) == []
    (told,) = [record.message for record in caplog.records if "a3" in record.message]
    assert (
        "may not read table public.a3, nor publish table public.a3, which only the owner may do. Run GRANT "
        "SELECT" in told
    )
    sql.execute(told.partition(" Run ")[2].partition(". Until")[0].encode())
    assert len(attempts(feed)) == 1
    assert feed.rows("public.a3") == {(1,): {"id": 1}}


def test_a_lock_on_a_new_table_delays_resolved_marks_and_not_the_changes(
    feed: Feed, database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    sql.execute("CREATE TABLE a3 (id int PRIMARY KEY)")
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE a3 IN SHARE ROW EXCLUSIVE MODE")
        reached = dict(feed.resolved)
        sql.execute("UPDATE a1 SET v = 'meanwhile' WHERE id = 1")
        feed.steps_until(lambda: feed.rows("public.a1")[(1,)]["v"] == "meanwhile")
        assert feed.resolved == reached
        assert "resolved timestamps are on hold until public.a3 can be published" in caplog.text
    assert len(attempts(feed)) == 1
    assert "public.a3" in followed(feed)


def test_a_pattern_that_matches_nothing_is_refused_only_when_it_is_alone(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with feed_of(database, "nothing_*") as feed, pytest.raises(ConfigError, match=r"no table matches 'noth"):
        feed.rangefeed.check()
    with feed_of(database, "a1", "nothing_*") as feed:
        feed.rangefeed.check()
        assert "'nothing_*' in 'tables' matches no table yet" in caplog.text


def test_an_attempt_that_ended_while_a_table_joined_is_repeated(feed: Feed, sql: Sql) -> None:
    sql.execute("CREATE TABLE a3 (id int PRIMARY KEY)")
    sql.execute("INSERT INTO a3 VALUES (1)")
    with pytest.raises(RestartError):
        feed.catch_up()
    assert "a3" in published(sql)
    saved = feed.saved
    feed.restart()  # it ends before its start is saved
    feed.saved = saved
    sql.execute("INSERT INTO a3 VALUES (2)")
    feed.restart()
    assert attempts(feed) == []
    assert feed.rows("public.a3") == table_of(sql, "SELECT * FROM a3")


def test_a_given_publication_of_all_tables_has_later_tables_too(database: str, sql: Sql) -> None:
    sql.execute("CREATE PUBLICATION everything FOR ALL TABLES WITH (publish_via_partition_root = true)")
    with caught_up(database, "a*", options={"publication_name": "everything"}) as feed:
        sql.execute("CREATE TABLE a3 AS SELECT 1 AS id")
        sql.execute("ALTER TABLE a3 ADD PRIMARY KEY (id)")
        attempts(feed)
        assert feed.rows("public.a3") == {(1,): {"id": 1}}


def test_a_table_that_is_not_in_the_given_publication_is_left_out(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    sql.execute("CREATE PUBLICATION partly FOR TABLE a1 WITH (publish_via_partition_root = true)")
    with started(database, "a*", checked=True, options={"publication_name": "partly"}) as feed:
        assert attempts(feed) == []
        assert followed(feed) == {"public.a1"}
        assert "a2 is not in publication partly. Run ALTER PUBLICATION" in caplog.text
        sql.execute("ALTER PUBLICATION partly ADD TABLE a2")
        assert len(attempts(feed)) == 1
        assert feed.rows("public.a2") == table_of(sql, "SELECT * FROM a2")


def test_a_listed_table_that_was_dropped_ends_the_changefeed(database: str, sql: Sql) -> None:
    with caught_up(database, "a*", "b1") as feed:
        sql.execute("DROP TABLE b1")
        with pytest.raises(TerminalRangefeedError, match=r"table public\.b1 was dropped\. To continue without it"):
            feed.catch_up()
        with pytest.raises(ConfigError, match=r"table public\.b1 was dropped\. To continue without it"):
            feed.restart()


def test_a_table_that_became_a_partition_is_followed_with_its_new_table(feed: Feed, sql: Sql) -> None:
    sql.execute("CREATE TABLE a (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    sql.execute("ALTER TABLE a ATTACH PARTITION a1 FOR VALUES FROM (0) TO (1000)")
    partition = r"table public\.a1 became a partition of a, .* add '!public\.a1' to 'tables'"
    with pytest.raises(TerminalRangefeedError, match=partition):
        feed.catch_up()
    feed.resume(tables=("public.a*", "!public.a1"))
    sql.execute("UPDATE a SET v = 'after' WHERE id = 1")
    feed.catch_up()
    assert feed.rows("public.a") == table_of(sql, "SELECT * FROM a")


def test_no_mark_passes_a_table_that_takes_the_name_of_a_dropped_one(feed: Feed, sql: Sql) -> None:
    sql.execute("DROP TABLE a1")
    sql.execute("CREATE TABLE a1 (id int PRIMARY KEY, w text)")
    sql.execute("INSERT INTO a1 VALUES (100, 'new')")
    assert attempts(feed) == ["stopped following dropped tables: public.a1"]
    assert feed.rows("public.a1")[(100,)] == {"id": 100, "w": "new"}
    assert followed(feed) == {"public.a1", "public.a2"}
