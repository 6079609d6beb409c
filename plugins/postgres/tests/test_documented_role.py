"""The role of docs/postgres.md suffices, and it is the one that changefeeds of tests connect as."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import cdc_rangefeed_postgres
import psycopg
import pytest
from cdc_rangefeed_postgres.connection import Server
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.documented_role import DOCUMENTED, OWNER, ROLE, documented
from cdc_testing.feeding import Feed, caught_up, feed_of, started
from cdc_testing.postgres import Sql
from cdc_testing.versions import MAJORS

from cdc_core import ConfigError, RangefeedContext, RetryableRangefeedError

PAGE = Path(__file__).parents[3] / "docs" / "postgres.md"
SOURCES = Path(cdc_rangefeed_postgres.__file__).parent
ASKED_FOR = {"pg_log_standby_snapshot"}
"""Functions that the role may not call by default. The privilege is looked up before the call."""
TOLD = {"pg_reload_conf", "pg_wal_replay_resume"}
"""Functions that are not called: a remedy names them."""


@pytest.fixture
def items(sql: Sql) -> None:
    sql.execute("CREATE TABLE items (id int PRIMARY KEY)")
    sql.execute("INSERT INTO items VALUES (1)")


def check(feed: Feed, *, known: bool = True) -> None:
    rangefeed = PostgresRangefeed(replace(feed.context, saved=feed.saved if known else None))
    try:
        rangefeed.check()
    finally:
        rangefeed.close()


@contextmanager
def of_another_role(sql: Sql, publication: str) -> Iterator[None]:
    sql.execute(f"ALTER PUBLICATION {publication} OWNER TO postgres")
    try:
        yield
    finally:
        sql.execute(f"ALTER PUBLICATION {publication} OWNER TO {ROLE}")


@pytest.mark.usefixtures("items")
def test_changefeeds_of_tests_connect_as_the_role_of_the_page(database: str, sql: Sql) -> None:
    with started(database, "items") as feed:
        feed.scan()
        used = "SELECT DISTINCT usename::text FROM pg_stat_activity WHERE application_name LIKE 'cdc/%'"
        assert sql.execute(f"{used} AND datname = current_database()").fetchall() == [(ROLE,)]
    attributes = "rolsuper, rolcreaterole, rolcreatedb, rolbypassrls, rolreplication, rolinherit, rolcanlogin"
    found = sql.execute(f"SELECT {attributes} FROM pg_roles WHERE rolname = %s", [ROLE]).fetchone()
    assert found == (False, False, False, False, True, True, True)
    members = "SELECT rolname::text FROM pg_roles WHERE pg_has_role(%s, oid, 'MEMBER') ORDER BY 1"
    assert [name for (name,) in sql.execute(members, [ROLE])] == sorted([OWNER, ROLE])
    page = PAGE.read_text()
    for statement in DOCUMENTED:
        assert statement.format(password="…", database="shop") in page


def test_a_changefeed_that_connects_as_a_superuser_is_found() -> None:
    server = CopiedPostgres(settings={"fsync": "off"})
    server.start()
    for uri in (documented(server.uri()), server.uri()):
        context = RangefeedContext(
            changefeed="feed", feed_id="00aa11bb22cc", uri=uri, tables=("items",), options=PostgresOptions()
        )
        Server(context).connect("driver").close()
    with pytest.raises(AssertionError, match=r"connected as a superuser.*: user=shop_owner .*=cdc/feed/"):
        server.stop()


@pytest.mark.parametrize("major", [None, *(pytest.param(major, marks=pytest.mark.slow) for major in MAJORS)])
def test_the_role_may_call_all_functions_and_see_all_settings(
    major: int | None, postgres_server: EmbeddedPostgres, postgres_version: Callable[[int], EmbeddedPostgres]
) -> None:
    text = "\n".join(path.read_text() for path in SOURCES.glob("*.py"))
    functions = sorted(set(re.findall(r"\b[a-z_][a-z0-9_]+(?=\()", text)))
    settings = set(re.findall(r"current_setting\('([a-z_]+)'", text))
    server = postgres_server if major is None else postgres_version(major)
    refused = (
        "SELECT proname::text FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY(%s)"
        " AND NOT has_function_privilege(oid, 'EXECUTE')"
    )
    with psycopg.connect(documented(server.uri()), autocommit=True) as connection:
        assert {name for (name,) in connection.execute(refused, [functions])} <= ASKED_FOR | TOLD
        for name in settings:
            connection.execute("SELECT current_setting(%s, true)", [name])


@pytest.mark.usefixtures("items")
def test_a_check_notes_what_the_role_may_not_do_and_need_not(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    grant = f'GRANT EXECUTE ON FUNCTION pg_log_standby_snapshot() TO "{ROLE}";'
    with feed_of(database, "items") as feed, caplog.at_level(logging.INFO):
        check(feed)
        assert [text.partition(" Run ")[2] for text in caplog.messages] == [grant]
        sql.execute(grant)
        caplog.clear()
        check(feed)
        assert caplog.messages == []


@pytest.mark.usefixtures("items")
def test_a_writer_whose_age_the_role_may_not_see_is_named(database: str, sql: Sql) -> None:
    sql.execute("CREATE ROLE batch_writer LOGIN PASSWORD 'pw'")
    sql.execute("GRANT INSERT ON items TO batch_writer")
    uri = re.sub("//.*@", "//batch_writer:pw@", database)
    try:
        with psycopg.connect(uri, application_name="batch") as writer:
            writer.execute("INSERT INTO items VALUES (2)")
            refused = pytest.raises(RetryableRangefeedError, match=r"\(oldest: process \d+, application 'batch'\)")
            with feed_of(database, "items", options={"snapshot_wait": 0.2}) as feed, refused:
                feed.start()
            writer.rollback()
    finally:
        sql.execute("DROP OWNED BY batch_writer")
        sql.execute("DROP ROLE batch_writer")


@pytest.mark.usefixtures("items")
def test_a_publication_of_another_role_is_named_with_the_statement(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    with caught_up(database, "*") as feed:
        name = feed.rangefeed._slot.publication.name
        told = (
            f"role cdc does not own publication {name}, so it can neither add tables to the publication nor drop it."
            " Run ALTER "
            f'PUBLICATION "{name}" OWNER TO "cdc"'
        )
        with of_another_role(sql, name), caplog.at_level(logging.INFO):
            check(feed)
            assert f"{told};" in caplog.messages
            sql.execute("CREATE TABLE later (id int PRIMARY KEY)")
            feed.catch_up()
            assert [text for text in caplog.messages if text.startswith(f"{told}. Until then the table is skipped")]
            with pytest.raises(ConfigError, match=r"so it can neither add tables"):
                check(feed, known=False)


@pytest.mark.usefixtures("items")
def test_a_new_slot_needs_again_what_the_first_one_needed(database: str, sql: Sql) -> None:
    with started(database, "items") as feed:
        feed.scan()
        sql.execute(f"REVOKE CREATE ON DATABASE {sql.info.dbname} FROM {ROLE}")
        check(feed)
        with pytest.raises(ConfigError, match=f'Run GRANT CREATE ON DATABASE .* TO "{ROLE}";'):
            check(feed, known=False)
        sql.execute(f"GRANT CREATE ON DATABASE {sql.info.dbname} TO {ROLE}")
        sql.execute("ALTER TABLE items OWNER TO postgres")
        sql.execute(f"GRANT SELECT ON items TO {ROLE}")
        check(feed)
        with pytest.raises(ConfigError, match=r"may not publish table public\.items, which only the owner may do"):
            check(feed, known=False)
