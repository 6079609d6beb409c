"""Every sentence that says why a changefeed cannot start. Each check leaves the server as it was."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed
from cdc_testing.postgres import Sql

from cdc_core import ConfigError, RangefeedContext


def context_of(uri: str, *tables: str, **more: Any) -> RangefeedContext:
    return RangefeedContext(
        changefeed="orders", feed_id="00aa11bb22cc", uri=uri, tables=tables, options=PostgresOptions(), **more
    )


def check(uri: str, *tables: str, **more: Any) -> None:
    rangefeed = PostgresRangefeed(context_of(uri, *tables, **more))
    try:
        rangefeed.check()
    finally:
        rangefeed.close()


def refusal(uri: str, *tables: str, **more: Any) -> str:
    """Return what `check` says, and make sure that it says it in one line and created nothing."""
    with pytest.raises(ConfigError) as caught:
        check(uri, *tables, **more)
    text = str(caught.value)
    assert "\n" not in text
    return text


def as_user(uri: str, user: str, password: str) -> str:
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password)}@{parts.hostname}:{parts.port}"))


@contextmanager
def role(sql: Sql, uri: str, *, attributes: str = "REPLICATION") -> Iterator[str]:
    """URI of a new role, whose name is `clerk`; it is dropped at the end."""
    sql.execute(f"CREATE ROLE clerk LOGIN PASSWORD 'pass word' {attributes}")
    try:
        yield as_user(uri, "clerk", "pass word")
    finally:
        sql.execute("DROP OWNED BY clerk")
        sql.execute("DROP ROLE clerk")


@pytest.fixture(autouse=True)
def table(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")


def test_a_fit_table_passes_and_nothing_is_created(database: str, sql: Sql) -> None:
    check(database, "t")
    assert sql.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
    assert sql.execute("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()").fetchone() == (
        0,
    )


def test_an_unreachable_host() -> None:
    text = refusal("postgresql://u:geheim@127.0.0.1:1/db", "t")
    assert text == (
        "cannot connect to PostgreSQL at 127.0.0.1:1/db: connection failed: connection to server at "
        '"127.0.0.1", port 1 failed: Connection refused: mend the source URI'
    )


def test_an_unknown_host() -> None:
    text = refusal("postgresql://u:geheim@no-such-host.invalid/db", "t")
    assert text.startswith("cannot connect to PostgreSQL at no-such-host.invalid:5432/db: failed to resolve host")
    assert "geheim" not in text


def test_a_wrong_password(database: str) -> None:
    text = refusal(as_user(database, "postgres", "geheim"), "t")
    assert 'password authentication failed for user "postgres": mend the source URI' in text
    assert "geheim" not in text


def test_an_unknown_database(database: str) -> None:
    text = refusal(database.rpartition("/")[0] + "/nowhere", "t")
    assert text.endswith('/nowhere: database "nowhere" does not exist: mend the source URI')


def test_an_unknown_uri_parameter(database: str) -> None:
    assert (
        refusal(f"{database}?sslmod=require", "t")
        == "source URI: PostgreSQL does not know parameter 'sslmod'; did you mean 'sslmode'?"
    )


def test_a_uri_that_cannot_be_read_does_not_show_its_password() -> None:
    text = refusal("postgresql://u:ge%heim@host/db", "t")
    assert text.startswith("source URI cannot be read: write postgresql://user:password@host:port/database")
    assert "heim" not in text


def test_wal_level_must_be_logical() -> None:
    with EmbeddedPostgres(settings={"fsync": "off", "wal_level": "replica"}) as server:
        assert refusal(server.uri(), "t") == (
            "the server's wal_level is replica, but changefeeds need logical: run ALTER SYSTEM SET wal_level = "
            "'logical'; and restart the server"
        )


def test_replication_slots_and_wal_senders_must_be_free() -> None:
    settings = {"fsync": "off", "max_replication_slots": "1", "max_wal_senders": "0"}
    with EmbeddedPostgres(settings=settings) as server, psycopg.connect(server.uri(), autocommit=True) as sql:
        sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
        assert refusal(server.uri(), "t") == (
            "the server has 1 free replication slots, but the changefeed needs 2: run ALTER SYSTEM SET "
            "max_replication_slots = 11; and restart the server, or drop slots that are not needed"
        )
        check(server.uri(), "t", initial_scan=False)
    settings["max_replication_slots"] = "5"
    with EmbeddedPostgres(settings=settings) as server:
        assert refusal(server.uri(), "t") == (
            "all 0 WAL senders of the server are in use, but the initial scan needs one: run ALTER SYSTEM SET "
            "max_wal_senders = 10; and restart the server"
        )


def test_the_role_needs_replication(database: str, sql: Sql) -> None:
    with role(sql, database, attributes="") as uri:
        assert refusal(uri, "t") == ('role clerk may not use replication: run ALTER ROLE "clerk" REPLICATION;')


def test_each_missing_privilege_is_named_with_the_statement_that_grants_it(database: str, sql: Sql) -> None:
    name = sql.info.dbname
    sql.execute("CREATE ROLE owner_of_t")
    sql.execute("CREATE SCHEMA shop")
    sql.execute("CREATE TABLE shop.t (id int PRIMARY KEY)")
    sql.execute("ALTER TABLE shop.t OWNER TO owner_of_t")
    try:
        with role(sql, database) as uri:
            expected = [
                (
                    f"role clerk may not create a publication in database {name}: run GRANT CREATE ON DATABASE "
                    f'"{name}" TO "clerk";'
                ),
                'role clerk may not use schema shop: run GRANT USAGE ON SCHEMA "shop" TO "clerk";',
                'role clerk may not read table shop.t: run GRANT SELECT ON "shop"."t" TO "clerk";',
                (
                    "role clerk does not own table shop.t, and only an owner can publish a table: run GRANT "
                    '"owner_of_t" TO "clerk";'
                ),
            ]
            for text in expected:
                assert refusal(uri, "shop.t") == text
                sql.execute(text.partition(": run ")[2])
            check(uri, "shop.t")
    finally:
        sql.execute("DROP TABLE shop.t")
        sql.execute("DROP OWNED BY owner_of_t")
        sql.execute("DROP ROLE owner_of_t")


def test_row_level_security_would_hide_rows(database: str, sql: Sql) -> None:
    sql.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    sql.execute(f"GRANT CREATE ON DATABASE {sql.info.dbname} TO PUBLIC")
    sql.execute("GRANT SELECT ON t TO PUBLIC")
    with role(sql, database) as uri:
        assert refusal(uri, "t") == (
            'table public.t has row-level security, which would hide rows from role clerk: run ALTER ROLE "clerk" '
            "BYPASSRLS;"
        )


@pytest.mark.parametrize(
    ("written", "suggestion"),
    [
        ("public.orderz", "; did you mean public.orders?"),
        ("orders2", "; did you mean public.orders?"),
        ("lines", "; did you mean shop.lines?"),
        ("Mixed", '; did you mean "public"."Mixed"?'),
        ("zzzzzz", ": create it, or mend the name"),
    ],
)
def test_a_missing_table(database: str, sql: Sql, written: str, suggestion: str) -> None:
    sql.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    sql.execute('CREATE TABLE "Mixed" (id int PRIMARY KEY)')
    sql.execute("CREATE SCHEMA shop")
    sql.execute("CREATE TABLE shop.lines (id int PRIMARY KEY)")
    text = refusal(database, written)
    assert re.fullmatch(r"table \S+ does not exist" + re.escape(suggestion), text), text
    check(database, 'public."Mixed"', "shop.lines", '"public".orders')


def test_what_is_not_an_ordinary_table(database: str, sql: Sql) -> None:
    sql.execute("CREATE VIEW v AS SELECT * FROM t")
    sql.execute("CREATE MATERIALIZED VIEW m AS SELECT * FROM t")
    sql.execute("CREATE SEQUENCE s")
    sql.execute("CREATE UNLOGGED TABLE u (id int PRIMARY KEY)")
    assert refusal(database, "v") == "public.v is a view, which has no changes of its own: name tables"
    assert refusal(database, "m") == "public.m is a materialized view, which has no changes of its own: name tables"
    assert refusal(database, "s") == "public.s is a sequence, which has no changes of its own: name tables"
    assert refusal(database, "u") == (
        'table public.u is unlogged, so its changes are not in the log: run ALTER TABLE "public"."u" SET LOGGED;'
    )
    assert refusal(database, "pg_catalog.pg_class") == (
        "table pg_catalog.pg_class is a system table, which cannot be published: name tables of yours"
    )


def test_a_table_without_a_key(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE k (id int NOT NULL, n int)")
    assert refusal(database, "k") == (
        'table public.k has no primary key, so its changes cannot be told apart: run ALTER TABLE "public"."k" ADD '
        'PRIMARY KEY (…); or, with a unique index over NOT NULL columns, ALTER TABLE "public"."k" REPLICA IDENTITY '
        "USING INDEX …;"
    )
    sql.execute("CREATE UNIQUE INDEX k_id ON k (id)")
    sql.execute("ALTER TABLE k REPLICA IDENTITY USING INDEX k_id")
    check(database, "k")


def test_replica_identity_nothing(database: str, sql: Sql) -> None:
    sql.execute("ALTER TABLE t REPLICA IDENTITY NOTHING")
    text = refusal(database, "t")
    assert text == (
        "table public.t has REPLICA IDENTITY NOTHING, so its updates and deletes cannot be published: run ALTER TABLE "
        '"public"."t" REPLICA IDENTITY DEFAULT;'
    )
    sql.execute(text.partition(": run ")[2])
    check(database, "t")


def test_diff_needs_replica_identity_full(database: str, sql: Sql) -> None:
    text = refusal(database, "t", diff=True)
    assert text == (
        'table public.t does not log old rows, which the option diff needs: run ALTER TABLE "public"."t" REPLICA '
        "IDENTITY FULL;"
    )
    sql.execute(text.partition(": run ")[2])
    check(database, "t", diff=True)


def test_a_deferrable_primary_key(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE k (id int PRIMARY KEY DEFERRABLE)")
    text = refusal(database, "k")
    assert text == (
        "table public.k has a deferrable primary key, by which its updates and deletes cannot be published: run ALTER "
        'TABLE "public"."k" REPLICA IDENTITY FULL;'
    )
    sql.execute(text.partition(": run ")[2])
    check(database, "k")


def test_a_generated_key_column(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE k (n int NOT NULL, id int GENERATED ALWAYS AS (n * 2) STORED PRIMARY KEY)")
    assert refusal(database, "k") == (
        "table public.k has the generated column id in its key, and generated columns are not in the log: give it "
        'another key with ALTER TABLE "public"."k" REPLICA IDENTITY USING INDEX …;'
    )


def test_tables_listed_twice_or_next_to_their_root(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)")
    assert refusal(database, "t", "public.t") == "table public.t is listed twice: remove one of the two"
    assert refusal(database, "p", "p1") == (
        "table public.p1 is a partition of public.p, which is listed too and brings its partitions: remove public.p1"
    )
    assert refusal(database, "p1") == (
        "table public.p1 is a partition: partitioned tables are watched through their root, so name that instead"
    )


def test_partitions_must_be_fit_too(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)")
    sql.execute("ALTER TABLE p REPLICA IDENTITY FULL")
    assert refusal(database, "p", diff=True) == (
        "table public.p1, a partition of public.p, does not log old rows, which the option diff needs: run ALTER TABLE "
        '"public"."p1" REPLICA IDENTITY FULL;'
    )
    sql.execute("CREATE UNLOGGED TABLE p2 (id int PRIMARY KEY)")
    sql.execute("ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)")
    assert "table public.p2, a partition of public.p, is unlogged" in refusal(database, "p")


@pytest.mark.parametrize("text", ["", "a.b.c", 'a."b', "a b", "a..b"])
def test_a_name_that_cannot_be_read(database: str, text: str) -> None:
    assert refusal(database, text).startswith(f"table name {text!r} cannot be read: write schema.table")
