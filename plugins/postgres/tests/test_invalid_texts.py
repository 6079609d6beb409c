"""Databases with encoding SQL_ASCII take any bytes for texts: a row whose bytes are not UTF-8 is refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.documented_role import documented
from cdc_testing.feeding import caught_up
from cdc_testing.fixtures import fresh_database

from cdc_core import BadRowError, watch


@pytest.fixture
def ascii_database(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    with fresh_database(postgres_server, kind="ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0") as uri:
        yield uri


VALUES = {
    "text": "'a' || chr(255)",
    "text[]": "ARRAY['a', chr(255)]",
    "varchar(5)": "chr(255)",
    "jsonb": "to_jsonb(chr(255))",
    "kind": "ROW(1, chr(255))::kind",
}


@pytest.mark.parametrize("scanned", [True, False], ids=["scan", "log"])
@pytest.mark.parametrize("type_", VALUES)
def test_a_text_that_is_not_utf_8_is_named_with_its_column_and_key(
    ascii_database: str, type_: str, *, scanned: bool
) -> None:
    with psycopg.connect(ascii_database, autocommit=True) as sql:
        sql.execute("SET client_encoding = 'SQL_ASCII'")
        sql.execute("CREATE TYPE kind AS (n int, t text)")
        sql.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {type_})")
        if scanned:
            sql.execute(f"INSERT INTO t VALUES (1, NULL), (2, {VALUES[type_]}), (3, NULL)")
        with watch(source=documented(ascii_database), tables=["t"]) as rows:
            if not scanned:
                sql.execute("INSERT INTO t VALUES (0, NULL)")
                assert json.loads(next(rows).value or b"")["after"] == {"id": 0, "v": None}
                sql.execute(f"INSERT INTO t VALUES (1, NULL), (2, {VALUES[type_]}), (3, NULL)")
            assert json.loads(next(rows).value or b"")["after"] == {"id": 1, "v": None}
            told = (
                r"public\.t with key \{'id': 2\}.*column v: its text is not valid UTF-8 at byte \d+; change the value"
            )
            with pytest.raises(BadRowError, match=told):
                next(rows)


def test_a_key_that_is_not_utf_8_is_named(ascii_database: str) -> None:
    with psycopg.connect(ascii_database, autocommit=True) as sql:
        sql.execute("SET client_encoding = 'SQL_ASCII'")
        sql.execute("CREATE TABLE t (id text PRIMARY KEY, v int)")
        sql.execute("INSERT INTO t VALUES ('good', 1)")
        with watch(source=documented(ascii_database), tables=["t"]) as rows:
            assert next(rows).key == b'["good"]'
            sql.execute("INSERT INTO t VALUES (chr(255), 1); DELETE FROM t WHERE id = chr(255)")
            with pytest.raises(
                BadRowError, match=r"with key \{'id': '\\\\xff'\}.*column id: its text is not valid UTF-8 at byte 1"
            ):
                next(rows)


def test_an_attempt_begins_before_a_text_that_is_not_utf_8(ascii_database: str) -> None:
    with psycopg.connect(ascii_database, autocommit=True) as sql:
        sql.execute("SET client_encoding = 'SQL_ASCII'")
        sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        with caught_up(ascii_database, "t") as feed:
            sql.execute("INSERT INTO t VALUES (1, chr(255))")
            feed.restart()
            assert len(feed.slices()) == 1
