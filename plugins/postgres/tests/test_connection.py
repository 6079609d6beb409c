"""Connections: their settings, their errors, and the secrets that they keep."""

from __future__ import annotations

import logging
import pickle
import traceback
from typing import Any
from urllib.parse import quote

import pytest
from cdc_rangefeed_postgres.connection import Server
from cdc_rangefeed_postgres.history import PostgresHistory
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.planner import PostgresPlanner
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed
from cdc_testing.documented_role import ROLE, documented
from cdc_testing.feeding import caught_up, feed_of, started
from cdc_testing.postgres import Sql

from cdc_core import CdcError, RangefeedContext, RetryableRangefeedError, StepLimit, TerminalRangefeedError, Timestamp

SECRET = "s3cr3t/& wörd%"
LIMIT = StepLimit(rows=1000, bytes=1 << 20)


def context_of(uri: str) -> RangefeedContext:
    return RangefeedContext(
        changefeed="orders", feed_id="00aa11bb22cc", uri=documented(uri), tables=("t",), options=PostgresOptions()
    )


def test_sessions_have_the_settings_that_values_are_decoded_from(database: str) -> None:
    with Server(context_of(f"{database}?options=-c%20work_mem%3D7MB")).connect("check") as connection:
        shown = [
            connection.execute(f"SHOW {name}").fetchone()
            for name in ("work_mem", "TimeZone", "IntervalStyle", "statement_timeout", "application_name")
        ]
        assert shown == [("7MB",), ("UTC",), ("postgres",), ("0",), ("cdc/orders/00aa11bb22cc/check",)]


ODD_SETTINGS = {
    "DateStyle": "'SQL, DMY'",
    "IntervalStyle": "sql_standard",
    "TimeZone": "'Asia/Kolkata'",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "quote_all_identifiers": "on",
    "search_path": "odd, pg_catalog",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "client_encoding": "LATIN1",
    "client_min_messages": "debug1",
    "exit_on_error": "on",
    "row_security": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "statement_timeout": "'9ms'",
    "lock_timeout": "'1ms'",
    "idle_in_transaction_session_timeout": "'9ms'",
    "idle_session_timeout": "'900ms'",
    "enable_tidscan": "off",
    "enable_indexscan": "off",
    "jit": "on",
}


def odd_settings(sql: Sql) -> dict[str, str]:
    """Return the settings that are set above the session; those of newer servers only there."""
    newer = {"transaction_timeout": "'900ms'"} if sql.info.server_version >= 170000 else {}
    return ODD_SETTINGS | newer


@pytest.mark.parametrize("owner", ["DATABASE {}", "ROLE cdc IN DATABASE {}"])
def test_no_setting_of_a_role_a_database_or_a_login_trigger_reaches_a_session(
    database: str, sql: Sql, owner: str
) -> None:
    shown = ", ".join(f"current_setting('{name}')" for name in odd_settings(sql))

    def session() -> list[Any]:
        server = Server(context_of(database))
        with server.connect("check") as connection, server.connect("snapshot", replication=True) as replication:
            arrow = server.connect_arrow("reader")
            with arrow, arrow.cursor() as cursor:
                cursor.execute(f"SELECT {shown}")
                return [
                    connection.execute(f"SELECT {shown}").fetchone(),
                    replication.execute(f"SELECT {shown}").fetchone(),
                    cursor.fetchone(),
                ]

    before = session()
    for name, value in odd_settings(sql).items():
        sql.execute(f"ALTER {owner.format(sql.info.dbname)} SET {name} = {value}")
    assert session() == before
    sql.execute(f"ALTER {owner.format(sql.info.dbname)} RESET ALL")
    if sql.info.server_version >= 170000:
        settings = "; ".join(f"SET {name} = {value}" for name, value in odd_settings(sql).items())
        sql.execute(f"CREATE FUNCTION f() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN {settings}; END$$".encode())
        sql.execute("CREATE EVENT TRIGGER f ON login EXECUTE FUNCTION f()")
        assert session() == before


def test_a_changefeed_delivers_the_same_whatever_its_role_is_set_to(database: str, sql: Sql) -> None:
    table = 'public."o\\dd\'s"'
    values = (
        "'2026-02-03', '2026-02-03 04:05:06.123456+00', '1 year -2 days 03:04:05', 0.1::float8 + 0.2, 1.1, 'é'::bytea,"
        " 'wörd\\', ARRAY[NULL, 'NULL'], ARRAY['2026-02-03'::date], ROW(1, 'a\\b')::\"o dd\", 'int8'::regtype"
    )
    sql.execute('CREATE TYPE "o dd" AS (a int, "B" text)')
    sql.execute(
        f"CREATE TABLE {table} (id int PRIMARY KEY, d date, t timestamptz, i interval, f float8, g float4, b bytea,"
        ' s text, n text[], a date[], c "o dd", r regtype)'
    )
    sql.execute(f"INSERT INTO {table} SELECT g, {values} FROM generate_series(1, 300) g")
    sql.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    found = []
    for _ in range(2):
        with started(database, table, diff=True) as feed:
            feed.scan()
            sql.execute(f"UPDATE {table} SET id = id + 1000 WHERE id IN (1, 1001)")
            sql.execute(f"UPDATE {table} SET id = id - 1000 WHERE id > 1000")
            feed.catch_up()
            changes = sorted(feed.changes, key=lambda change: change.key)
            found.append([(change.op, change.before, change.after) for change in changes])
        for name, value in odd_settings(sql).items():
            sql.execute(f"ALTER ROLE cdc IN DATABASE {sql.info.dbname} SET {name} = {value}")
    assert len(found[0]) == 304
    assert found[0] == found[1]


def test_no_limit_of_the_server_ends_a_session_that_waits(database: str, sql: Sql) -> None:
    names = ("idle_session_timeout", "idle_in_transaction_session_timeout", "statement_timeout")
    for name in names:
        sql.execute(f"ALTER DATABASE {sql.info.dbname} SET {name} = '9s'")
    with Server(context_of(database)).connect("check") as connection:
        assert [connection.execute(f"SHOW {name}").fetchone() for name in names] == [("0",)] * len(names)


def test_readers_connect_without_reading_the_columns_and_types_of_all_tables(database: str, sql: Sql) -> None:
    sql.execute("REVOKE SELECT ON pg_catalog.pg_attribute, pg_catalog.pg_type FROM PUBLIC")
    Server(context_of(database)).connect_arrow("log").close()


def test_a_connection_to_a_host_that_vanished_is_given_up_unless_the_uri_says_otherwise(database: str) -> None:
    with Server(context_of(f"{database}?keepalives_idle=7")).connect("check") as connection:
        found = {option.keyword: option.val for option in connection.pgconn.info if option.val is not None}
        assert (found[b"keepalives_idle"], found[b"keepalives_interval"]) == (b"7", b"10")
        assert found[b"tcp_user_timeout"] == b"30000"


@pytest.mark.parametrize(("options", "spills"), [({}, False), ({"logical_decoding_work_mem": 64 << 10}, True)])
def test_the_memory_for_decoding_is_that_of_the_option_and_not_of_the_server(
    database: str, sql: Sql, options: dict[str, Any], spills: bool
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    name = sql.info.dbname
    sql.execute(f"ALTER DATABASE {name} SET logical_decoding_work_mem = '{'64kB' if not spills else '1GB'}'")
    with caught_up(database, "t", options=options) as feed:
        sql.execute("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 20000) g")
        feed.catch_up()
        row = sql.execute(
            "SELECT spill_txns > 0, total_txns > 0 FROM pg_stat_replication_slots WHERE slot_name = %s",
            [f"cdc_test_{feed.context.feed_id}"],
        ).fetchone()
    assert row == (spills, True)


@pytest.mark.parametrize(
    ("authority", "place"),
    [
        ("db", "db:5432/shop"),
        ("u:s3cret@db:1", "db:1/shop"),
        ("u:s3cret@db1,db2:2", "db1:5432,db2:2/shop"),
        ("u:s3cret@db1:1,[::1]:2", "db1:1,[::1]:2/shop"),
    ],
)
def test_messages_name_every_host_of_the_uri(authority: str, place: str) -> None:
    assert Server(context_of(f"postgresql://{authority}/shop?target_session_attrs=read-write")).place == place


def test_every_connection_goes_to_the_host_that_answers(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    sql.execute("INSERT INTO t VALUES (1)")
    uri = f"{database.replace('@', '@127.0.0.1:1,')}?target_session_attrs=read-write"
    with started(uri, "t") as feed:
        feed.scan()
        sql.execute("INSERT INTO t VALUES (2)")
        feed.catch_up()
        assert list(feed.rows("public.t")) == [(1,), (2,)]


def test_an_unreachable_server_is_retryable_during_an_attempt() -> None:
    context = context_of("postgresql://u:p@127.0.0.1:1/db")
    rangefeed, planner, history = PostgresRangefeed(context), PostgresPlanner(context), PostgresHistory(context)
    refused = r"PostgreSQL failed while .*: connection failed: .* Connection refused"
    for call in (
        rangefeed.schemas,
        lambda: rangefeed.start(None, print),
        planner.now,
        history.metrics,
        lambda: history.release({"lsn": "0/1"}),
    ):
        with pytest.raises(RetryableRangefeedError, match=refused):
            call()


def test_a_revoked_privilege_is_terminal(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    sql.execute("INSERT INTO t VALUES (1)")
    sql.execute(f"CREATE ROLE reader LOGIN REPLICATION PASSWORD 'x' IN ROLE {ROLE}")
    uri = f"postgresql://reader:x@{database.split('@')[1]}"
    try:
        with feed_of(database, "t") as admin, started(uri, "t", feed_id=admin.context.feed_id) as feed:
            slices = feed.plan_scan()
            sql.execute(f"REVOKE {ROLE} FROM reader")
            with pytest.raises(
                TerminalRangefeedError, match=r"permission denied for table t\. Run `cdc check FILE NAME`"
            ):
                list(feed.reader.read(slices[0]))
            sql.execute(f"GRANT {ROLE} TO reader")
    finally:
        sql.execute("DROP OWNED BY reader")
        sql.execute("DROP ROLE reader")


def test_no_secret_is_in_errors_reprs_logs_or_tokens(database: str, sql: Sql, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    sql.execute("INSERT INTO t VALUES (1)")
    sql.execute(f"CREATE ROLE keeper LOGIN REPLICATION PASSWORD '{SECRET}' IN ROLE {ROLE}")
    place = database.split("@")[1]
    uri = f"postgresql://keeper:{quote(SECRET, safe='')}@{place}"
    seen: list[str] = []
    try:
        with started(uri, "t") as feed:
            feed.step()
            planned = feed.plan()
            assert planned is not None
            seen += [repr(feed.context), repr(feed.planner), repr(feed.rangefeed._server), str(feed.token)]
            seen += [repr(planned), repr(pickle.dumps(planned[1]))]
            feed.scan()
        wrong = uri.replace("keeper", "nobody")
        broken = uri.replace("?", "") + "?sslmode=nonsense"
        for bad in (wrong, broken, f"postgresql://u:{SECRET}@h/d"):
            planner = PostgresPlanner(context_of(bad))
            for call in (
                PostgresRangefeed(context_of(bad)).check,
                planner.now,
                lambda planner=planner: planner.advance(
                    {"lsn": "0/1", "clock": None, "scan": None, "tables": {}, "catalog": "", "settled": "0/0"},
                    after=Timestamp(),
                    limit=LIMIT,
                ),
            ):
                with pytest.raises(CdcError) as caught:
                    call()
                seen.append("".join(traceback.format_exception(caught.value)))
    finally:
        sql.execute("DROP ROLE keeper")
    text = "\n".join([*seen, caplog.text])
    for secret in (SECRET, quote(SECRET, safe=""), "s3cr3t"):
        assert secret not in text
