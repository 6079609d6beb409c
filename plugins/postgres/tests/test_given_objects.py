"""A slot and a publication that existed before: what is read from them, what is refused, and that they stay."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.feeding import Feed, caught_up, feed_of, started
from cdc_testing.fixtures import fresh_database
from cdc_testing.postgres import Sql, clock, table_of, value, writing
from cdc_testing.versions import MAJORS

from cdc_core import ConfigError, HistoryLostError, Op, TerminalRangefeedError

GIVEN = {"slot_name": "shop_slot", "publication_name": "Shop's pub"}
ROOT = "WITH (publish_via_partition_root = true)"
ALTER = """Run ALTER PUBLICATION "Shop's pub" """


@pytest.fixture(autouse=True)
def table(sql: Sql) -> None:
    make_table(sql)


def make_table(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    sql.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 100) g")


def make_publication(sql: Sql, what: str = "FOR TABLE t", more: str = ROOT) -> None:
    sql.execute(f"""CREATE PUBLICATION "Shop's pub" {what} {more}""")


def make_slot(sql: Sql, *, name: str = "shop_slot", plugin: str = "pgoutput") -> None:
    sql.execute("SELECT pg_create_logical_replication_slot(%s, %s)", [name, plugin])


@pytest.fixture
def made(sql: Sql, table: None) -> None:
    """The publication and the slot are there."""
    make_publication(sql)
    make_slot(sql)


def given(database: str, *tables: str, **more: Any) -> AbstractContextManager[Feed]:
    return feed_of(database, *(tables or ("t",)), options={**GIVEN, **more.pop("options", {})}, **more)


def remaining(sql: Sql) -> list[str]:
    slots = "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database() AND NOT temporary"
    return sorted(row[0] for row in sql.execute(f"{slots} UNION ALL SELECT pubname::text FROM pg_publication"))


def refusal(feed: Feed) -> str:
    """Return the one error of both `cdc check` and the start."""
    with pytest.raises(ConfigError) as checked:
        feed.rangefeed.check()
    with pytest.raises(ConfigError) as started:
        feed.rangefeed.start(None, lambda _: None)
    text = str(checked.value)
    assert text == str(started.value)
    assert "\n" not in text
    return text


def remedy(text: str) -> str:
    return text.partition(". Run ")[2]


def test_every_commit_after_the_slots_position_arrives_at_its_own_time(made: None, database: str, sql: Sql) -> None:
    before = clock(database)
    sql.execute("INSERT INTO t VALUES (101, 1)")
    sql.execute("UPDATE t SET n = 2 WHERE id = 101")
    sql.execute("DELETE FROM t WHERE id = 7")
    after = clock(database)
    with given(database, initial_scan=False) as feed:
        feed.start()
        feed.catch_up()
        assert [(change.key, change.op) for change in feed.changes] == [
            ((101,), Op.INSERT),
            ((101,), Op.UPDATE),
            ((7,), Op.DELETE),
        ]
        assert all(before <= change.updated <= after for change in feed.changes)


def test_the_initial_scan_is_consistent_with_the_log_since_the_slot_was_made(database: str, sql: Sql) -> None:
    def write(connection: Sql, n: int) -> None:
        key = n * 7919 % 300 + 50  # half of the old rows never change
        if n % 3 == 0:
            connection.execute("DELETE FROM t WHERE id = %s", [key])
        else:
            connection.execute("INSERT INTO t VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET n = excluded.n", [key, n])

    make_publication(sql)
    make_slot(sql)
    for n in range(1000):
        write(sql, n)
    with given(database, options={"scan_round": 0.05, "scan_chunk_size": 70_000}) as feed:
        with writing(database, write):
            feed.start()
            feed.step()
            feed.restart()
            feed.scan()
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n FROM t")
        assert {change.op for change in feed.changes} == set(Op)


def test_they_remain_when_the_changefeed_is_dropped(made: None, database: str, sql: Sql) -> None:
    with given(database) as feed:
        feed.start()
        feed.scan()
        feed.rangefeed.drop(feed.saved)
        assert remaining(sql) == ["Shop's pub", "shop_slot"]
        assert list(feed.rangefeed.created()) == []


def test_a_given_slot_that_has_the_changefeeds_own_name_remains_too(database: str, sql: Sql) -> None:
    own = "cdc_test_0123456789ab"
    sql.execute(f"CREATE PUBLICATION {own} FOR TABLE t {ROOT}")
    make_slot(sql, name=own)
    options = {"slot_name": own, "publication_name": own}
    with caught_up(database, "t", options=options, feed_id="0123456789ab") as feed:
        feed.rangefeed.drop(feed.saved)
        assert remaining(sql) == [own, own]


def test_a_publication_alone_gets_a_slot_that_is_dropped_with_the_changefeed(database: str, sql: Sql) -> None:
    make_publication(sql)
    with caught_up(database, "t", options={"publication_name": "Shop's pub"}) as feed:
        sql.execute("UPDATE t SET n = 0")
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n FROM t")
        own = f"cdc_test_{feed.context.feed_id}"
        assert remaining(sql) == ["Shop's pub", own]
        assert [(entry.name, entry.kinds) for entry in feed.rangefeed.created()] == [(own, ("replication slot",))]
        feed.close()
        feed.rangefeed.drop(feed.saved)
        assert remaining(sql) == ["Shop's pub"]


def test_a_slot_alone_gets_a_publication_and_its_older_log_is_replaced_by_the_scan(database: str, sql: Sql) -> None:
    make_slot(sql)
    sql.execute("INSERT INTO t SELECT g, g FROM generate_series(101, 200) g")
    with started(database, "t", options={"slot_name": "shop_slot"}) as feed:
        sql.execute("UPDATE t SET n = 0 WHERE id > 150")
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n FROM t")
        own = f"cdc_test_{feed.context.feed_id}"
        assert remaining(sql) == [own, "shop_slot"]
        feed.close()
        feed.rangefeed.drop(feed.saved)
        assert remaining(sql) == ["shop_slot"]


def test_a_slot_alone_needs_the_initial_scan(database: str, sql: Sql) -> None:
    make_slot(sql)
    with feed_of(database, "t", options={"slot_name": "shop_slot"}, initial_scan=False) as feed:
        assert refusal(feed) == (
            "replication slot shop_slot has changes older than the publication that the changefeed would create, so the"
            " changefeed could not read them. Set publication_name to a publication that is older than the slot"
        )


def test_the_role_needs_neither_create_nor_the_tables(made: None, database: str, sql: Sql) -> None:
    sql.execute("CREATE ROLE given_reader LOGIN REPLICATION PASSWORD 'pw'")
    try:
        sql.execute("GRANT SELECT ON t TO given_reader")
        with given(re.sub("//.*@", "//given_reader:pw@", database)) as feed:
            feed.start()
            sql.execute("UPDATE t SET n = 0")
            feed.catch_up()
            assert feed.rows("public.t") == table_of(sql, "SELECT id, n FROM t")
    finally:
        sql.execute("DROP OWNED BY given_reader")
        sql.execute("DROP ROLE given_reader")


def test_other_tables_of_the_publication_are_left_alone(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE other (id int PRIMARY KEY)")
    sql.execute("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100)")
    make_publication(sql, "FOR ALL TABLES")
    make_slot(sql)
    with given(database, "t", "p") as feed:
        feed.start()
        feed.scan()
        sql.execute("INSERT INTO other SELECT generate_series(1, 100)")
        sql.execute("INSERT INTO p SELECT generate_series(1, 50)")
        sql.execute("TRUNCATE other")
        sql.execute("UPDATE t SET n = 0")
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n FROM t")
        assert feed.rows("public.p") == table_of(sql, "SELECT id FROM p")
        sql.execute("TRUNCATE other, t")
        with pytest.raises(TerminalRangefeedError, match=r"^table public\.t was truncated"):
            feed.catch_up()


def test_a_publication_of_a_schema_has_its_tables(database: str, sql: Sql) -> None:
    make_publication(sql, "FOR TABLES IN SCHEMA public")
    make_slot(sql)
    with given(database) as feed:
        feed.start()
        feed.catch_up()
        assert len(feed.rows("public.t")) == 100


@pytest.mark.parametrize(
    ("what", "more", "expected"),
    [
        ("FOR TABLE t", "", f"publishes changes to partitions under the partitions' names. {ALTER}SET (publish"),
        (
            "FOR TABLE t",
            "WITH (publish_via_partition_root = true, publish = 'insert, update')",
            f"publication Shop's pub does not publish delete and truncate. {ALTER}SET (publish = 'insert, update, ",
        ),
        ("FOR TABLE u", ROOT, f'table public.t is not in publication Shop\'s pub. {ALTER}ADD TABLE "public"."t";'),
        (
            "FOR TABLE t WHERE (id > 5)",
            ROOT,
            "table public.t has a row filter in publication Shop's pub, so changes would be missing. Run BEGIN; ALTER ",
        ),
        (
            "FOR TABLE t (id)",
            ROOT,
            "table public.t has a column list in publication Shop's pub that leaves out n. Run BEGIN; ALTER ",
        ),
    ],
)
def test_a_publication_that_would_leave_out_changes_is_refused_with_the_statement_that_fixes_it(
    database: str, sql: Sql, what: str, more: str, expected: str
) -> None:
    sql.execute("CREATE TABLE u (id int PRIMARY KEY)")
    make_publication(sql, what, more)
    make_slot(sql)
    with given(database) as feed:
        text = refusal(feed)
        assert expected in text
        sql.execute(remedy(text))
        feed.start()
        feed.catch_up()
        assert len(feed.rows("public.t")) == 100


def test_a_publication_that_does_not_exist_is_refused_with_the_statement_that_creates_it(
    database: str, sql: Sql
) -> None:
    make_slot(sql)
    with given(database) as feed:
        text = refusal(feed)
        assert text.startswith("publication Shop's pub does not exist. Run CREATE PUBLICATION ")
        sql.execute(remedy(text))
        feed.start()


def test_a_slot_that_cannot_be_read_is_refused(database: str, sql: Sql, postgres_server: EmbeddedPostgres) -> None:
    make_publication(sql)
    name = sql.info.dbname
    with given(database) as feed:
        assert refusal(feed) == (
            "replication slot shop_slot does not exist. Run SELECT pg_create_logical_replication_slot('shop_slot', "
            f"'pgoutput'); in database {name}"
        )
        sql.execute("SELECT pg_create_physical_replication_slot('shop_slot')")
        try:
            assert refusal(feed) == (
                "replication slot shop_slot is physical, but changefeeds need a logical slot. Set slot_name to another"
                " slot"
            )
        finally:
            sql.execute("SELECT pg_drop_replication_slot('shop_slot')")
        make_slot(sql, plugin="test_decoding")
        assert "uses the plugin test_decoding, but changefeeds need pgoutput" in refusal(feed)
        sql.execute("SELECT pg_drop_replication_slot('shop_slot')")
        sql.execute("SELECT pg_create_logical_replication_slot('shop_slot', 'pgoutput', twophase => true)")
        assert "has two_phase, so it sends transactions that are not committed yet. Run SELECT pg_drop" in refusal(feed)
        sql.execute("SELECT pg_drop_replication_slot('shop_slot')")
        with fresh_database(postgres_server) as other:
            with psycopg.connect(other, autocommit=True) as elsewhere:
                make_slot(elsewhere)
            assert f", but the source is database {name}. Set slot_name to another slot" in refusal(feed)


def test_a_slot_in_use_is_refused_and_its_user_is_left_alone(database: str, sql: Sql) -> None:
    make_publication(sql)
    with psycopg.connect(database, autocommit=True, application_name="debezium") as other, given(database) as feed:
        other.execute("SELECT pg_create_logical_replication_slot('shop_slot', 'pgoutput', true)")
        pid = other.info.backend_pid
        assert refusal(feed) == (
            f"replication slot shop_slot is in use by server process {pid} (application 'debezium'). Stop that"
            f" program, or set slot_name to another slot"
        )
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_another_reader_of_the_slot_is_noticed_during_the_run(made: None, database: str, sql: Sql) -> None:
    with given(database) as feed:
        feed.start()
        feed.catch_up()
        sql.execute("UPDATE t SET n = 0")
        sql.execute("SELECT pg_replication_slot_advance('shop_slot', pg_current_wal_flush_lsn())")
        with pytest.raises(HistoryLostError, match=r"slot shop_slot was moved to .* by another program"):
            feed.catch_up()


def test_an_own_slot_beside_the_given_one_is_refused(database: str, sql: Sql) -> None:
    with started(database, "t", feed_id="0123456789ab") as first:
        first.close()
        make_publication(sql)
        make_slot(sql)
        with given(database, feed_id="0123456789ab") as feed:
            assert refusal(feed).startswith("replication slot cdc_test_0123456789ab, which this changefeed created, ")


@pytest.mark.parametrize("major", [18, *(pytest.param(major, marks=pytest.mark.slow) for major in MAJORS)])
def test_a_publication_that_is_newer_than_the_slots_log_is_refused(
    major: int,
    postgres_server: EmbeddedPostgres,
    request: pytest.FixtureRequest,
) -> None:
    server = postgres_server if major == 18 else request.getfixturevalue("postgres_version")(major)
    with fresh_database(server) as database, psycopg.connect(database, autocommit=True) as sql:
        make_table(sql)
        make_slot(sql)
        sql.execute("UPDATE t SET n = 0")
        make_publication(sql)
        sql.execute("UPDATE t SET n = 1")
        with given(database) as feed:
            with pytest.raises(ConfigError, match="replication slot shop_slot has changes older than publication") as e:
                feed.start()
            for statement in remedy(str(e.value)).split(" and "):
                sql.execute(statement)
            feed.start()
            feed.catch_up()
            assert feed.rows("public.t") == table_of(sql, "SELECT id, n FROM t")


def test_a_publication_that_is_altered_during_a_run_is_terminal(made: None, database: str, sql: Sql) -> None:
    with given(database) as feed:
        feed.start()
        feed.catch_up()
        sql.execute("""ALTER PUBLICATION "Shop's pub" SET (publish = 'insert')""")
        sql.execute("UPDATE t SET n = 0")
        with pytest.raises(
            TerminalRangefeedError, match=r"does not publish update and delete and truncate.* may be lost"
        ):
            feed.catch_up()


def test_generated_columns_of_the_publication_arrive(database: str, sql: Sql) -> None:
    sql.execute("ALTER TABLE t ADD twice int GENERATED ALWAYS AS (n * 2) STORED")
    make_publication(sql, more="WITH (publish_via_partition_root = true, publish_generated_columns = stored)")
    make_slot(sql)
    with given(database) as feed:
        feed.start()
        sql.execute("UPDATE t SET n = n + 1")
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT * FROM t")


def test_a_publication_is_checked_while_its_table_is_locked(made: None, database: str, sql: Sql) -> None:
    with given(database, options={"lock_timeout": 0.5}) as feed, psycopg.connect(database) as other:
        feed.start()
        feed.catch_up()
        other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        feed.restart()
        sql.execute("SELECT pg_logical_emit_message(true, 'test', 'the log goes on')")
        feed.step()
        other.rollback()
        feed.catch_up()


def test_a_column_list_with_a_generated_column_is_refused(database: str, sql: Sql) -> None:
    sql.execute("ALTER TABLE t ADD twice int GENERATED ALWAYS AS (n * 2) STORED")
    make_publication(sql, what="FOR TABLE t (id, n, twice)")
    make_slot(sql)
    with given(database) as feed:
        text = refusal(feed)
        assert "has a column list" in text
        assert "with the generated column twice" in text
        sql.execute(remedy(text))
        feed.start()


def failover_of(sql: Sql, slot: str) -> object:
    return value(sql, "SELECT failover FROM pg_replication_slots WHERE slot_name = %s", slot)


def test_a_failover_slot_is_created_on_request(database: str, sql: Sql) -> None:
    with (
        feed_of(database, "t", options={"failover": True}) as feed,
        feed_of(database, "t", changefeed="plain") as plain,
    ):
        feed.start()
        plain.start()
        assert failover_of(sql, f"cdc_test_{feed.context.feed_id}") is True
        assert failover_of(sql, f"cdc_plain_{plain.context.feed_id}") is False


def test_failover_that_is_asked_for_after_the_start_is_refused(database: str) -> None:
    with started(database, "t", feed_id="0123456789ab") as feed:
        feed.close()
        with (
            feed_of(database, "t", feed_id="0123456789ab", options={"failover": True}) as later,
            pytest.raises(ConfigError, match="slot cdc_test_0123456789ab was created without failover, which option"),
        ):
            later.rangefeed.check()


def test_a_given_slot_without_failover_is_refused_where_failover_is_asked_for(database: str, sql: Sql) -> None:
    make_publication(sql)
    make_slot(sql)
    with given(database, options={"failover": True}) as feed:
        text = refusal(feed)
        assert text.startswith(
            "replication slot shop_slot was created without failover, which option 'failover' requires"
        )
        statement = remedy(text).partition(" on a replication connection")[0]
        with psycopg.connect(database, autocommit=True, replication="database") as connection:  # type: ignore[arg-type]
            connection.execute(statement)
        feed.start()


@pytest.mark.slow
def test_failover_is_refused_before_version_17(postgres_version: Callable[[int], EmbeddedPostgres]) -> None:
    with fresh_database(postgres_version(16)) as database, psycopg.connect(database, autocommit=True) as sql:
        make_table(sql)
        with feed_of(database, "t", options={"failover": True}) as feed, pytest.raises(ConfigError) as refused:
            feed.start()
        assert str(refused.value) == (
            "option 'failover' needs PostgreSQL 17 or newer, but the server is PostgreSQL 16. Remove the option"
        )
