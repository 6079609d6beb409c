"""Open transactions that make each step decode log again: who they are, and what a role may see of them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.long_transactions import LongTransactions, shown_query
from cdc_testing.clock import Clock
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.feeding import caught_up
from cdc_testing.postgres import Sql
from cdc_testing.runs import eventually

MB = 1 << 20


@pytest.fixture
def watch(clock: Clock) -> LongTransactions:
    return LongTransactions(clock=clock)


@pytest.fixture
def writer(database: str, sql: Sql) -> Iterator[Sql]:
    """A session that can keep a transaction open."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with psycopg.connect(database, application_name="batch") as connection:
        yield connection


def after_20_s(watch: LongTransactions, clock: Clock, sql: Sql, megabytes: int) -> str | None:
    text = None
    for _ in range(3):
        text = watch.poll(sql, restart="0/1", again_bytes=megabytes * MB)
        clock.now += 10.0
    return text


def test_each_step_after_an_open_transaction_decodes_its_log_again_and_the_notice_names_it(
    database: str, sql: Sql, writer: Sql, clock: Clock
) -> None:
    with caught_up(database, "t", bytes_=32 * MB) as feed:
        feed.history._long_transactions = LongTransactions(clock=clock)
        writer.execute("INSERT INTO t VALUES (0, 'a secret')")
        sql.execute("CREATE TABLE filler (v text)")
        for _ in range(2):
            sql.execute("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 40000)")
            feed.catch_up()
            assert feed.history.notice() is None
            clock.now += 20.0
        assert feed.history.metrics()["decoded_again_bytes"] > 64 * MB
        assert str(feed.history.notice()).startswith(
            "each step decodes more than 64 MB of the log again, from the beginning of an open transaction: process"
            f" {writer.info.backend_pid}, application 'batch', database '{sql.info.dbname}', open since "
        )
        writer.commit()
        sql.execute("SELECT pg_log_standby_snapshot()")
        clock.now += 10.0
        feed.catch_up()
        feed.catch_up()
        feed.history.metrics()
        assert feed.history.notice() is None

        def decodes_little() -> bool:
            sql.execute("SELECT pg_log_standby_snapshot()")
            clock.now += 10.0
            feed.catch_up()
            return feed.history.metrics()["decoded_again_bytes"] < 64 * MB

        eventually("steps that decode little again", decodes_little)  # those of other databases count


def test_while_a_session_is_kept_the_notice_says_that_only_a_start_decodes_again(
    sql: Sql, writer: Sql, watch: LongTransactions, clock: Clock
) -> None:
    writer.execute("INSERT INTO t VALUES (1, 'x')")
    texts = [after_20_s(watch, clock, sql, 100)]
    texts += [watch.poll(sql, restart="0/1", again_bytes=100 * MB, kept=True)]
    clock.now += 10.0
    texts += [watch.poll(sql, restart="0/1", again_bytes=100 * MB)]
    assert [str(text)[:12] for text in texts] == ["each step de", "each start d", "each step de"]


def test_the_notice_says_what_the_session_does_and_how_to_end_it_without_values(
    sql: Sql, writer: Sql, watch: LongTransactions, clock: Clock
) -> None:
    writer.execute("UPDATE t SET id = 17, v = 'a secret'")
    writer.execute("INSERT INTO t VALUES (12, 'a secret')")
    row = sql.execute(
        "SELECT to_char(xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') FROM pg_stat_activity WHERE pid = %s",
        [writer.info.backend_pid],
    ).fetchone()
    assert row is not None
    pid = writer.info.backend_pid
    assert after_20_s(watch, clock, sql, 300) == (
        "each step decodes more than 256 MB of the log again, from the beginning of an open transaction: process"
        f" {pid}, application 'batch', database '{sql.info.dbname}', open since {row[0]} UTC, idle in transaction, last"
        f" query: INSERT INTO t VALUES (?, …. Commit it, or run SELECT pg_terminate_backend({pid});"
    )


def test_a_session_that_does_not_track_what_it_does_is_named_without_it(
    sql: Sql, writer: Sql, watch: LongTransactions, clock: Clock
) -> None:
    writer.execute("SET track_activities = off")
    writer.commit()
    writer.execute("INSERT INTO t VALUES (12, 'a secret')")
    text = after_20_s(watch, clock, sql, 64)
    assert f"an open transaction: process {writer.info.backend_pid}, application 'batch'" in str(text)


def test_a_role_that_may_not_see_the_query_is_told_who_sees_it(
    database: str, sql: Sql, writer: Sql, watch: LongTransactions, clock: Clock, postgres_server: EmbeddedPostgres
) -> None:
    role = f"Reader {secrets.token_hex(4)}"
    sql.execute(f"CREATE ROLE \"{role}\" LOGIN PASSWORD 'pw'")
    writer.execute("INSERT INTO t VALUES (12, 'a secret')")
    uri = postgres_server.uri(sql.info.dbname, user=role, password="pw")
    with psycopg.connect(uri, autocommit=True) as reader:
        text = after_20_s(watch, clock, reader, 64)
        assert text is not None
        pid = writer.info.backend_pid
        look = f"SELECT xact_start, query FROM pg_stat_activity WHERE pid = {pid};"
        assert f"(a superuser can see its age and query with {look}). Commit it, or run" in text
        assert "INSERT" not in text
        sql.execute(f'GRANT pg_read_all_stats TO "{role}"')
        clock.now += 10.0
        seen = watch.poll(reader, restart="0/1", again_bytes=128 * MB)
        assert seen is not None
        assert "open since" in seen
    sql.execute(f'DROP ROLE "{role}"')


def test_the_text_changes_when_the_log_doubles_and_not_before(
    sql: Sql, writer: Sql, watch: LongTransactions, clock: Clock
) -> None:
    writer.execute("INSERT INTO t VALUES (1, 'x')")
    first = after_20_s(watch, clock, sql, 70)
    writer.execute("UPDATE t SET v = NULL")
    assert watch.poll(sql, restart="0/1", again_bytes=120 * MB) == first
    clock.now += 10.0
    assert "more than 1,024 MB" in str(watch.poll(sql, restart="0/1", again_bytes=1100 * MB))


def test_the_server_is_asked_every_10_s_and_only_when_much_is_decoded_again(
    sql: Sql, writer: Sql, watch: LongTransactions, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.execute("INSERT INTO t VALUES (1, 'x')")
    assert after_20_s(watch, clock, sql, 63) is None
    assert after_20_s(watch, clock, sql, 64) is not None
    clock.now -= 0.1
    writer.rollback()
    assert watch.poll(sql, restart="0/1", again_bytes=64 * MB) is not None
    clock.now += 0.1
    assert watch.poll(sql, restart="0/1", again_bytes=64 * MB) is None


def test_a_prepared_transaction_is_named_with_its_remedy(watch: LongTransactions, clock: Clock) -> None:
    with (
        CopiedPostgres(settings={"fsync": "off", "max_prepared_transactions": "2"}) as server,
        psycopg.connect(server.uri(), autocommit=True) as sql,
    ):
        sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
        sql.execute("BEGIN")
        sql.execute("INSERT INTO t VALUES (1)")
        sql.execute("PREPARE TRANSACTION 'it''s'")
        text = after_20_s(watch, clock, sql, 64)
        assert text is not None
        assert "from the beginning of prepared transaction 'it''s' in database 'postgres', prepared at " in text
        assert text.endswith(" UTC. Run COMMIT PREPARED 'it''s'; or ROLLBACK PREPARED 'it''s'; there")


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("UPDATE t SET n = n + 1", "UPDATE t SET n = n + ?"),
        ("UPDATE t2 SET v = 'x' WHERE id = 1", "UPDATE t2 SET v = …"),
        ("/* app */ -- more\n  DELETE\n  FROM t1 WHERE id IN (1, 2.5e3)", "DELETE FROM t1 WHERE id IN (?, ?)"),
        ("INSERT INTO t VALUES ($1, $2)", "INSERT INTO t VALUES ($1, $2)"),
        ("SELECT $tag$secret$tag$", "SELECT …"),
        ("UPDATE t SET v = E'it\\'s' || 'y'", "UPDATE t SET v = E …"),
        ("set local app.token = secret", "set …"),
        ("SELECT a /* secret */", "SELECT a …"),
        (f"SELECT {'a, ' * 60}a", f"SELECT {'a, ' * 31}…"),
        ("/* secret", "…"),
        ("", ""),
    ],
)
def test_the_values_in_a_query_are_not_shown(query: str, shown: str) -> None:
    assert shown_query(query) == shown
