"""A publication that was altered and restored before the changefeed compared it again leaves out changes: it ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed
from cdc_rangefeed_postgres.slot import Slot
from cdc_testing.feeding import Feed, again, caught_up, feed_of
from cdc_testing.fixtures import fresh_database
from cdc_testing.postgres import Sql, table_of
from cdc_testing.versions import MAJORS
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import Error, connect

from cdc_core import TerminalRangefeedError

PUBLICATION = {"publication_name": "p"}
ROOT = "WITH (publish_via_partition_root = true)"
OF_TABLES = f"CREATE PUBLICATION p FOR TABLE s.t, s.u {ROOT}"
OF_SCHEMA = f"CREATE PUBLICATION p FOR TABLES IN SCHEMA s {ROOT}"
OF_ALL = f"CREATE PUBLICATION p FOR ALL TABLES {ROOT}"

PUBLICATION_LEFT = {
    "created again": (OF_TABLES, "DROP PUBLICATION p", OF_TABLES),
    "all tables, created again": (OF_ALL, "DROP PUBLICATION p", OF_ALL),
    "narrowed": (
        OF_TABLES,
        "ALTER PUBLICATION p SET (publish = 'insert')",
        "ALTER PUBLICATION p SET (publish = 'insert, update, delete, truncate')",
    ),
    "without roots": (
        OF_ALL,
        "ALTER PUBLICATION p SET (publish_via_partition_root = false)",
        "ALTER PUBLICATION p SET (publish_via_partition_root = true)",
    ),
    "renamed": (OF_TABLES, "ALTER PUBLICATION p RENAME TO q", "ALTER PUBLICATION q RENAME TO p"),
}
TABLE_LEFT = {
    "left": (OF_TABLES, "ALTER PUBLICATION p DROP TABLE s.t", "ALTER PUBLICATION p ADD TABLE s.t"),
    "not set": (OF_TABLES, "ALTER PUBLICATION p SET TABLE s.u", "ALTER PUBLICATION p SET TABLE s.t, s.u"),
    "filtered": (
        OF_TABLES,
        "ALTER PUBLICATION p SET TABLE s.t WHERE (id > 1000), s.u",
        "ALTER PUBLICATION p SET TABLE s.t, s.u",
    ),
    "with a column list": (
        OF_TABLES,
        "ALTER PUBLICATION p SET TABLE s.t (id), s.u",
        "ALTER PUBLICATION p SET TABLE s.t, s.u",
    ),
    "in another schema": (OF_SCHEMA, "ALTER TABLE s.t SET SCHEMA other", "ALTER TABLE other.t SET SCHEMA s"),
    "schema left": (
        OF_SCHEMA,
        "ALTER PUBLICATION p DROP TABLES IN SCHEMA s",
        "ALTER PUBLICATION p ADD TABLES IN SCHEMA s",
    ),
}
ALTERED = "publication p was altered and restored, or dropped and created again, so changes to table"
ENTERED = "the entry in publication p was replaced (dropped and added again, or given another row filter or column"

WITNESSES = ("created again", "narrowed", "left", "filtered")
LEFT = [
    pytest.param(*three, said, id=name, marks=[] if name in WITNESSES else [pytest.mark.slow])
    for said, ways in ((ALTERED, PUBLICATION_LEFT), (ENTERED, TABLE_LEFT))
    for name, three in ways.items()
]
WRITE = "INSERT INTO {0} SELECT coalesce(max(id), 0) + 1 FROM {0}; UPDATE {0} SET v = coalesce(v, 0) + 1"


def make_tables(sql: Sql, publication: str) -> None:
    sql.execute("CREATE SCHEMA s; CREATE SCHEMA other")
    for name in ("t", "u"):
        sql.execute(f"CREATE TABLE s.{name} (id int PRIMARY KEY, v int); INSERT INTO s.{name} VALUES (1, 1)")
    sql.execute("CREATE TABLE other.z (id int PRIMARY KEY)")
    sql.execute(publication)


def write(sql: Sql) -> None:
    query = "SELECT oid::regclass::text FROM pg_class WHERE relname IN ('t', 't2', 'u') AND relkind = 'r'"
    for (table,) in sql.execute(query).fetchall():
        sql.execute(WRITE.format(table))


@pytest.fixture
def feed(database: str) -> Iterator[Feed]:
    with feed_of(database, "s.t", "s.u", options=PUBLICATION) as feed:
        yield feed


@pytest.mark.parametrize(("publication", "alter", "restore", "expected"), LEFT)
def test_what_was_altered_and_restored_ends_the_changefeed_and_every_later_start(
    publication: str, alter: str, restore: str, expected: str, feed: Feed, sql: Sql
) -> None:
    make_tables(sql, publication)
    feed.start()
    feed.catch_up()
    for statement in (alter, restore):
        sql.execute(statement)
        write(sql)
    check = PostgresRangefeed(replace(feed.context, saved=feed.saved)).check
    for look in (feed.catch_up, feed.restart, check):
        with pytest.raises(TerminalRangefeedError) as ended:
            look()
        assert expected in str(ended.value)
        assert "s.t" in str(ended.value)
        assert "cdc rescan FILE NAME --all --new-slot" in str(ended.value)


@pytest.mark.parametrize("what", ["narrowed", "left", "in another schema"])
def test_a_publication_that_ended_a_changefeed_and_was_restored_after_that_ends_it_again(
    what: str, feed: Feed, sql: Sql
) -> None:
    publication, alter, restore = (PUBLICATION_LEFT | TABLE_LEFT)[what]
    make_tables(sql, publication)
    feed.start()
    feed.catch_up()
    sql.execute(alter)
    write(sql)
    with pytest.raises(TerminalRangefeedError):
        feed.catch_up()
    sql.execute(restore)
    with pytest.raises(TerminalRangefeedError, match=f"{re.escape(ALTERED)}|{re.escape(ENTERED)}"):
        feed.restart()


STATEMENTS = sorted(
    {statement for first, *both in (PUBLICATION_LEFT | TABLE_LEFT).values() if first == OF_TABLES for statement in both}
    | {"ALTER PUBLICATION p ADD TABLES IN SCHEMA s", "ALTER PUBLICATION p DROP TABLES IN SCHEMA s"}
)


@settings(max_examples=10)
@given(
    statements=st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=6),
    looks=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_whatever_is_altered_a_consumer_has_every_row_or_the_changefeed_ends(
    statements: list[str], looks: list[bool], postgres_server: EmbeddedPostgres
) -> None:
    with (
        fresh_database(postgres_server) as database,
        connect(database, autocommit=True) as sql,
        feed_of(database, "s.t", "s.u", options=PUBLICATION) as feed,
    ):
        make_tables(sql, OF_TABLES)
        feed.start()
        feed.catch_up()
        for statement, look in zip(statements, [*looks[: len(statements) - 1], True], strict=False):
            with suppress(Error):  # the publication is not in the state in which it could be done
                sql.execute(statement)
            write(sql)
            if look:
                try:
                    feed.catch_up()
                except TerminalRangefeedError:
                    return
                for table in ("s.t", "s.u"):
                    assert feed.rows(table) == table_of(sql, f"SELECT * FROM {table}")


HARMLESS = (
    "ALTER PUBLICATION p ADD TABLE other.z",
    "ALTER PUBLICATION p SET TABLE s.t, s.u",
    "ALTER PUBLICATION p OWNER TO cdc",
    "ALTER PUBLICATION p OWNER TO shop_owner",
    "ALTER PUBLICATION p OWNER TO postgres; ALTER PUBLICATION p OWNER TO shop_owner",
    "COMMENT ON PUBLICATION p IS 'of a shop'",
    "ALTER TABLE s.t RENAME TO t2",
    "ALTER TABLE s.t2 RENAME TO t",
    "ALTER SCHEMA s RENAME TO s2",
    "ALTER SCHEMA s2 RENAME TO s",
    "GRANT SELECT ON s.t TO PUBLIC",
    "ALTER TABLE s.t ADD COLUMN more int",
    "ALTER TABLE s.t DROP COLUMN more",
    "VACUUM FULL s.t",
    "VACUUM FULL pg_publication",
    "VACUUM FULL pg_publication_rel",
    "VACUUM FULL pg_depend",
    "VACUUM FREEZE pg_publication_rel",
    "CREATE PUBLICATION another FOR ALL TABLES",
    "DROP PUBLICATION another",
)


@pytest.mark.parametrize("major", [18, *(pytest.param(major, marks=pytest.mark.slow) for major in MAJORS)])
def test_what_loses_nothing_does_not_end_it(
    major: int, postgres_server: EmbeddedPostgres, request: pytest.FixtureRequest
) -> None:
    server = postgres_server if major == 18 else request.getfixturevalue("postgres_version")(major)
    more = ("ALTER PUBLICATION p ADD TABLES IN SCHEMA s", "ALTER PUBLICATION p DROP TABLE s.t") if major > 14 else ()
    more += ("ALTER PUBLICATION p SET (publish_generated_columns = stored)",) if major > 17 else ()
    with (
        fresh_database(server) as database,
        connect(database, autocommit=True) as sql,
        feed_of(database, "s.t", "s.u", options=PUBLICATION) as feed,
    ):
        make_tables(sql, OF_TABLES)
        feed.start()
        for statement in (*HARMLESS, *more):
            sql.execute(statement)
            write(sql)
            feed.catch_up()
            feed.restart()
        feed.catch_up()
        assert feed.rows("s.t") == table_of(sql, "SELECT * FROM s.t")


def test_a_new_owner_does_not_hide_a_later_change(feed: Feed, sql: Sql) -> None:
    make_tables(sql, OF_TABLES)
    feed.start()
    sql.execute("ALTER PUBLICATION p OWNER TO cdc")
    feed.catch_up()
    _, alter, restore = PUBLICATION_LEFT["narrowed"]
    sql.execute(alter)
    sql.execute(restore)
    with pytest.raises(TerminalRangefeedError):
        feed.catch_up()


def test_the_publication_of_the_changefeed_is_compared_too(database: str, sql: Sql) -> None:
    make_tables(sql, OF_TABLES)
    with caught_up(database, "s.t") as feed, again(feed, database, "s.t", "s.u") as wider:
        wider.catch_up()
        with again(wider, database, "s.t") as narrower:
            narrower.catch_up()
            name = Slot.of(narrower.context).publication.name
            sql.execute(f"ALTER PUBLICATION {name} DROP TABLE s.t")
            write(sql)
            sql.execute(f"ALTER PUBLICATION {name} ADD TABLE s.t")
            with pytest.raises(TerminalRangefeedError, match=r"^table s\.t: the entry in publication "):
                narrower.restart()


def test_a_table_that_left_can_be_read_anew(database: str, sql: Sql) -> None:
    make_tables(sql, OF_TABLES)
    with caught_up(database, "s.t", "s.u", options=PUBLICATION) as feed:
        sql.execute("ALTER PUBLICATION p DROP TABLE s.t")
        write(sql)
        sql.execute("ALTER PUBLICATION p ADD TABLE s.t")
        with again(feed, database, "s.u", options=PUBLICATION) as without:
            without.catch_up()
            with again(without, database, "s.t", "s.u", options=PUBLICATION) as listed:
                listed.catch_up()
                assert listed.rows("s.t") == table_of(sql, "SELECT * FROM s.t")


def test_a_token_of_an_earlier_version_is_compared_from_its_first_start_on(feed: Feed, sql: Sql) -> None:
    make_tables(sql, OF_TABLES)
    feed.start()
    feed.catch_up()
    token = feed.token
    for state in token["tables"].values():
        del state["published"]
    feed.saved = token
    feed.restart()
    write(sql)
    feed.catch_up()
    assert feed.rows("s.t") == table_of(sql, "SELECT * FROM s.t")
    for statement in TABLE_LEFT["left"][1:]:
        sql.execute(statement)
    with pytest.raises(TerminalRangefeedError, match=re.escape(ENTERED)):
        feed.catch_up()
