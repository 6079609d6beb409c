"""Every error that prevents the start of a changefeed. No check changes the server."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from cdc_rangefeed_postgres.checks import logs_logically
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.documented_role import ROLE, documented
from cdc_testing.postgres import Sql

from cdc_core import ConfigError, RangefeedContext


def context_of(uri: str, *tables: str, **more: Any) -> RangefeedContext:
    return RangefeedContext(
        changefeed="orders",
        feed_id="00aa11bb22cc",
        uri=documented(uri),
        tables=tables,
        **{"options": PostgresOptions(), **more},
    )


def check(uri: str, *tables: str, **more: Any) -> None:
    rangefeed = PostgresRangefeed(context_of(uri, *tables, **more))
    try:
        rangefeed.check()
    finally:
        rangefeed.close()


def refusal(uri: str, *tables: str, **more: Any) -> str:
    """Return the error of `check`, which is one line."""
    with pytest.raises(ConfigError) as caught:
        check(uri, *tables, **more)
    text = str(caught.value)
    assert "\n" not in text
    elsewhere = (
        "cannot connect",
        "may not",
        "WAL senders",
        "free replication slot",
    )
    assert caught.value.repairable is any(words in text for words in elsewhere)
    return text


def as_user(uri: str, user: str, password: str) -> str:
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password)}@{parts.hostname}:{parts.port}"))


@contextmanager
def role(sql: Sql, uri: str, *, attributes: str = "REPLICATION") -> Iterator[str]:
    """URI of a new role `clerk`, which is dropped at the end."""
    sql.execute(f"CREATE ROLE clerk LOGIN PASSWORD 'pass word' {attributes}")
    try:
        yield as_user(uri, "clerk", "pass word")
    finally:
        sql.execute("DROP OWNED BY clerk")
        sql.execute("DROP ROLE clerk")


@pytest.fixture(autouse=True)
def table(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")


def test_a_valid_table_passes_and_nothing_is_created(database: str, sql: Sql) -> None:
    check(database, "t")
    assert sql.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
    assert sql.execute("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()").fetchone() == (
        0,
    )


def test_an_unreachable_host() -> None:
    text = refusal("postgresql://u:s3cret@127.0.0.1:1/db", "t")
    assert text == (
        "cannot connect to PostgreSQL at 127.0.0.1:1/db: connection failed: connection to server at "
        '"127.0.0.1", port 1 failed: Connection refused. Fix the source URI'
    )


def test_an_unknown_host() -> None:
    text = refusal("postgresql://u:s3cret@no-such-host.invalid/db", "t")
    assert text.startswith("cannot connect to PostgreSQL at no-such-host.invalid:5432/db: failed to resolve host")
    assert "s3cret" not in text


def test_a_wrong_password(database: str) -> None:
    text = refusal(as_user(database, "postgres", "s3cret"), "t")
    assert 'password authentication failed for user "postgres". Fix the source URI' in text
    assert "s3cret" not in text


def test_an_unknown_database(database: str) -> None:
    text = refusal(database.rpartition("/")[0] + "/nowhere", "t")
    assert text.endswith('/nowhere: database "nowhere" does not exist. Fix the source URI')


def test_an_unknown_uri_parameter(database: str) -> None:
    assert (
        refusal(f"{database}?sslmod=require", "t")
        == "source URI: PostgreSQL does not know parameter 'sslmod'; did you mean 'sslmode'?"
    )


def test_an_invalid_uri_does_not_show_its_password() -> None:
    text = refusal("postgresql://u:s3%cret@host/db", "t")
    assert text.startswith(
        "source URI: not a valid PostgreSQL URI. Write postgresql://user:password@host:port/database"
    )
    assert "cret" not in text


def test_wal_level_must_be_logical() -> None:
    with CopiedPostgres(settings={"fsync": "off", "wal_level": "replica"}) as server:
        assert refusal(server.uri(), "t") == (
            "the server's wal_level is replica, but changefeeds need logical. Run ALTER SYSTEM SET wal_level = "
            "'logical'; and restart the server"
        )


def test_from_postgresql_19_on_a_slot_makes_the_server_log_for_decoding() -> None:
    for level, effective, standby, able in (
        ("logical", None, False, True),
        ("replica", None, False, False),
        ("logical", "logical", False, True),
        ("replica", "logical", False, True),
        ("replica", "replica", False, True),
        ("minimal", "minimal", False, False),
        ("replica", "logical", True, True),
        ("replica", "replica", True, False),
        ("logical", "replica", True, False),
    ):
        assert logs_logically(level, effective, standby=standby) is able, (level, effective, standby)


def test_replication_slots_and_wal_senders_must_be_free(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    settings = {"fsync": "off", "max_replication_slots": "1", "max_wal_senders": "0"}
    with CopiedPostgres(settings=settings) as server, psycopg.connect(server.uri(), autocommit=True) as sql:
        sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
        sql.execute(f"GRANT EXECUTE ON FUNCTION pg_log_standby_snapshot() TO {ROLE}")
        assert refusal(server.uri(), "t") == (
            "the server has 1 free replication slot, but the changefeed needs 2. Run ALTER SYSTEM SET "
            "max_replication_slots = 11; and restart the server, or drop unused slots"
        )
        assert caplog.messages == []
        check(server.uri(), "t", initial_scan=False)
        (note,) = caplog.messages
        assert note.startswith("the server has no free replication slot besides those that the changefeed needs")
        assert note.endswith("Run ALTER SYSTEM SET max_replication_slots = 11; and restart the server")
    settings["max_replication_slots"] = "5"
    with CopiedPostgres(settings=settings) as server:
        assert refusal(server.uri(), "t") == (
            "all 0 WAL senders of the server are in use, but the initial scan needs one more. Run ALTER SYSTEM SET"
            " max_wal_senders = 10; and restart the server"
        )


def test_the_role_needs_replication_and_connections(database: str, sql: Sql, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with role(sql, database, attributes="CONNECTION LIMIT 4") as uri:
        sql.execute("ALTER TABLE t OWNER TO clerk")
        sql.execute(f"GRANT CREATE ON DATABASE {sql.info.dbname} TO clerk")
        assert refusal(uri, "t") == 'role clerk may not use replication. Run ALTER ROLE "clerk" REPLICATION;'
        told = "role clerk may have only 4 connections, but a changefeed needs at least 5. Run ALTER ROLE"
        assert f'{told} "clerk" CONNECTION LIMIT 30;' in caplog.messages


@contextmanager
def foreign_tables(sql: Sql) -> Iterator[None]:
    """Tables with unusual names that the role may not see: `Weak "shop".It's` and a partitioned one."""
    statements = """
        CREATE SCHEMA "Weak ""shop"
        CREATE TABLE "Weak ""shop"."It's" (id int PRIMARY KEY)
        CREATE TABLE "Weak ""shop".whole (id int PRIMARY KEY) PARTITION BY RANGE (id)
        CREATE SCHEMA parts
        CREATE TABLE parts.p1 PARTITION OF "Weak ""shop".whole FOR VALUES FROM (0) TO (100)
        ALTER TABLE "Weak ""shop"."It's" ENABLE ROW LEVEL SECURITY
        ALTER TABLE parts.p1 ENABLE ROW LEVEL SECURITY
        INSERT INTO "Weak ""shop"."It's" VALUES (1)
    """
    for statement in statements.strip().splitlines():
        sql.execute(statement)
    try:
        yield
    finally:
        sql.execute('DROP SCHEMA parts, "Weak ""shop" CASCADE')


def test_all_missing_privileges_are_named_at_once_with_statements_that_grant_no_more(database: str, sql: Sql) -> None:
    """The tables belong to a superuser, whose rights no changefeed needs."""
    tables = ('"Weak ""shop"."It\'s"', '"Weak ""shop".whole')
    with foreign_tables(sql), role(sql, database, attributes="") as uri:
        text = refusal(uri, *tables)
        lacks, _, advice = text.partition(". ")
        both = '"Weak ""shop".It\'s, "Weak ""shop".whole'
        assert lacks == (
            f'role clerk may not use replication, nor use schema Weak "shop, parts, nor read table {both}, nor bypass'
            f" the row-level security of table {both}, which would hide rows, nor publish table {both}, which only "
            "the owner may do"
        )
        setting, _, statements = advice.partition(", and run ")
        assert setting == "Let the owner publish the tables: set publication_name = 'cdc_orders'"
        sql.execute(statements.encode())
        granted = sql.execute("SELECT roleid FROM pg_auth_members WHERE member = 'clerk'::regrole").fetchall()
        assert granted == []
        check(uri, *tables, options=PostgresOptions(publication_name="cdc_orders"))
        sql.execute("DROP PUBLICATION cdc_orders")


def test_a_role_that_owns_the_tables_may_have_to_be_allowed_to_create_a_publication(database: str, sql: Sql) -> None:
    name = sql.info.dbname
    with role(sql, database) as uri:
        sql.execute("ALTER TABLE t OWNER TO clerk")
        text = refusal(uri, "t")
        assert text == (
            f"role clerk may not create a publication in database {name}. Run GRANT CREATE ON DATABASE "
            f'"{name}" TO "clerk";'
        )
        sql.execute(text.partition(". Run ")[2])
        check(uri, "t")


def test_the_privileges_of_all_tables_that_match_are_named_at_once(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE u (id int PRIMARY KEY)")
    with role(sql, database) as uri:
        assert 'GRANT SELECT ON "public"."t", "public"."u" TO "clerk";' in refusal(uri, "*")


def test_a_missing_table(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    sql.execute('CREATE TABLE "Mixed" (id int PRIMARY KEY)')
    sql.execute("CREATE SCHEMA shop")
    sql.execute("CREATE TABLE shop.lines (id int PRIMARY KEY)")
    for written, suggestion in (
        ("public.orderz", "; did you mean public.orders?"),
        ("orders2", "; did you mean public.orders?"),
        ("lines", "; did you mean shop.lines?"),
        ("Mixed", '; did you mean "public"."Mixed"?'),
        ("zzzzzz", f" in database {urlsplit(database).path[1:]}. Create it, or correct the name or the source URI"),
    ):
        text = refusal(database, written)
        assert re.fullmatch(r"table \S+ does not exist" + re.escape(suggestion), text), text
    check(database, 'public."Mixed"', "shop.lines", '"public".orders')


def test_an_object_that_is_not_an_ordinary_table(database: str, sql: Sql) -> None:
    sql.execute("CREATE VIEW v AS SELECT * FROM t")
    sql.execute("CREATE MATERIALIZED VIEW m AS SELECT * FROM t")
    sql.execute("CREATE SEQUENCE s")
    sql.execute("CREATE UNLOGGED TABLE u (id int PRIMARY KEY)")
    assert refusal(database, "v") == "public.v is a view, but changefeeds can only watch tables. List tables only"
    assert (
        refusal(database, "m")
        == "public.m is a materialized view, but changefeeds can only watch tables. List tables only"
    )
    assert refusal(database, "s") == "public.s is a sequence, but changefeeds can only watch tables. List tables only"
    assert refusal(database, "u") == (
        'table public.u is unlogged, so its changes are not in the log. Run ALTER TABLE "public"."u" SET LOGGED;'
    )
    assert refusal(database, "pg_catalog.pg_class") == (
        "table pg_catalog.pg_class is a system table and cannot be published. List your own tables only"
    )


def test_a_table_without_a_key(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE k (id int NOT NULL, n int)")
    assert refusal(database, "k") == (
        'table public.k has no primary key, so its changes cannot be identified. Run ALTER TABLE "public"."k" ADD '
        'PRIMARY KEY (…); or, with a unique index over NOT NULL columns, ALTER TABLE "public"."k" REPLICA IDENTITY '
        "USING INDEX …;"
    )
    sql.execute("CREATE UNIQUE INDEX k_id ON k (id)")
    sql.execute("ALTER TABLE k REPLICA IDENTITY USING INDEX k_id")
    check(database, "k")


@pytest.mark.parametrize(
    ("statement", "diff", "lacks", "identity"),
    [
        (
            "ALTER TABLE k REPLICA IDENTITY NOTHING",
            False,
            "has REPLICA IDENTITY NOTHING, so its updates and deletes cannot be published",
            "DEFAULT",
        ),
        ("", True, "does not log old rows, which option 'diff' and cdc_prev in a query need", "FULL"),
        (
            "ALTER TABLE k DROP CONSTRAINT k_pkey, ADD PRIMARY KEY (id) DEFERRABLE",
            False,
            "has a deferrable primary key, so its updates and deletes cannot be published",
            "FULL",
        ),
    ],
)
def test_a_replica_identity_that_does_not_serve_is_refused_with_the_statement_for_another(
    database: str, sql: Sql, statement: str, diff: bool, lacks: str, identity: str
) -> None:
    sql.execute(f"CREATE TABLE k (id int PRIMARY KEY); {statement}")
    text = refusal(database, "k", diff=diff)
    assert text == f'table public.k {lacks}. Run ALTER TABLE "public"."k" REPLICA IDENTITY {identity};'
    sql.execute(text.partition(". Run ")[2])
    check(database, "k", diff=diff)


def test_a_generated_key_column_is_refused_where_it_is_not_in_the_log(
    postgres_version: Callable[[int], EmbeddedPostgres],
) -> None:
    uri = postgres_version(17).uri()
    with psycopg.connect(uri, autocommit=True) as sql:
        sql.execute("CREATE TABLE k (n int NOT NULL, id int GENERATED ALWAYS AS (n * 2) STORED PRIMARY KEY)")
        assert refusal(uri, "k") == (
            "table public.k has the generated column id in its key, but that column is not in the log. Use another "
            "key: run "
            'ALTER TABLE "public"."k" REPLICA IDENTITY USING INDEX …;'
        )
        sql.execute("DROP TABLE k")


def test_a_publication_that_would_make_updates_fail_is_refused(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE g (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) VIRTUAL)")
    check(database, "g")
    sql.execute("ALTER TABLE g REPLICA IDENTITY FULL")
    text = refusal(database, "g")
    assert text == (
        "table public.g has REPLICA IDENTITY FULL and the generated column twice, which is not published, so the server"
        " would refuse all updates and deletes once the table is published. Run ALTER TABLE "
        '"public"."g" REPLICA IDENTITY DEFAULT;'
    )
    assert refusal(database, "g", diff=True) == f"{text} and remove option 'diff', or cdc_prev from the query"
    sql.execute("INSERT INTO g (id) VALUES (1)")
    sql.execute("CREATE PUBLICATION like_ours FOR TABLE g WITH (publish_via_partition_root = true)")
    with pytest.raises(psycopg.errors.InvalidColumnReference, match="cannot update table"):
        sql.execute("UPDATE g SET n = 1")
    sql.execute(text.partition(". Run ")[2])
    sql.execute("UPDATE g SET n = 1")
    check(database, "g")


def test_tables_listed_twice_or_next_to_their_root(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)")
    assert refusal(database, "t", "public.t") == "table public.t is listed twice. Remove one of the entries"
    assert refusal(database, "p", "p1") == (
        "table public.p1 is a partition of public.p, which is also listed and includes its partitions. Remove public.p1"
    )
    assert refusal(database, "p1") == ("table public.p1 is a partition. List the root of the partitioned table instead")


def test_partitions_are_checked_too(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)")
    sql.execute("ALTER TABLE p REPLICA IDENTITY FULL")
    assert refusal(database, "p", diff=True) == (
        "table public.p1, a partition of public.p, does not log old rows, which option 'diff' and cdc_prev in a query"
        " need. Run ALTER TABLE "
        '"public"."p1" REPLICA IDENTITY FULL;'
    )
    sql.execute("ALTER TABLE p1 REPLICA IDENTITY FULL")
    for identity in ("DEFAULT", "NOTHING"):
        sql.execute(f"ALTER TABLE p REPLICA IDENTITY {identity}")
        assert refusal(database, "p", diff=True) == (
            "table public.p does not have REPLICA IDENTITY FULL, but the log marks old rows of its partitions according"
            ' to the identity of public.p. Run ALTER TABLE "public"."p" REPLICA IDENTITY FULL;'
        )
    sql.execute("ALTER TABLE p REPLICA IDENTITY FULL")
    check(database, "p", diff=True)
    sql.execute("CREATE UNLOGGED TABLE p2 (id int PRIMARY KEY)")
    sql.execute("ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)")
    assert "table public.p2, a partition of public.p, is unlogged" in refusal(database, "p")


def test_a_table_of_another_database(database: str) -> None:
    own = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    check(database, f'"{own}".public.t')
    assert refusal(database, "elsewhere.public.t").startswith(
        f"'elsewhere.public.t' names a table in database elsewhere, but the source is database {own}. List"
    )


def test_an_invalid_table_name(database: str) -> None:
    for text in ("", "*.b.c", "a.b.c.d", 'a."b', "a b", "a..b"):
        assert refusal(database, text).startswith(f"table name {text!r} is not valid. Write schema.table")
