"""A scan for a query reads the columns and the rows that the query uses; changes are read whole."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from cdc_rangefeed_postgres import restricted_scan
from cdc_rangefeed_postgres.blocks import Density, Piece
from cdc_rangefeed_postgres.restricted_scan import Estimates
from cdc_rangefeed_postgres.scan_slice import _wrong as wrong
from cdc_testing.feeding import caught_up, started
from cdc_testing.postgres import Sql

from cdc_core import Restriction
from cdc_core.queries.restricting import restriction_of
from cdc_core.queries.statement import parse_query


def test_a_scan_leaves_out_what_a_query_does_not_use_and_changes_do_not(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (a text, id int PRIMARY KEY, b int, c numeric)")
    sql.execute("INSERT INTO t SELECT 'x' || n, n, n, n FROM generate_series(1, 10) n")
    query = parse_query("SELECT b FROM t WHERE b > 7 AND b + 0 < 10")
    with caught_up(database, "public.t", restriction=partial(restriction_of, query)) as feed:
        scanned = [(change.key, change.after) for change in feed.changes]
        sql.execute("UPDATE t SET a = 'y' WHERE id = 2")
        feed.catch_up()
    assert sorted(scanned) == [((n,), {"a": None, "id": n, "b": n, "c": None}) for n in (8, 9, 10)]
    assert [(change.key, change.after) for change in feed.changes[3:]] == [
        ((2,), {"a": "y", "id": 2, "b": 2, "c": "2"})
    ]


def test_steps_of_a_scan_grow_with_what_a_query_leaves_out(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, b int, pad text)")
    sql.execute("INSERT INTO t SELECT n, n, repeat('x', 500) FROM generate_series(1, 4000) n")
    sql.execute("ANALYZE t")
    steps = []
    for text in ("SELECT * FROM t", "SELECT * FROM t WHERE b <= 40", "SELECT b FROM t"):
        query = parse_query(text)
        options = {"scan_chunk_size": 24_000}
        with started(database, "t", options=options, restriction=partial(restriction_of, query)) as feed:
            feed.scan()
            steps.append(feed.steps)
            assert len(feed.changes) == (40 if "WHERE" in text else 4000)
    assert steps[0] > 8 * steps[1], steps
    assert steps[0] > 8 * steps[2], steps


def test_a_table_that_is_read_whole_leaves_the_estimates_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = ("public.whole", "public.part", "public.other")
    monkeypatch.setattr(restricted_scan, "_share", lambda *_: Density(0.5, 0.25))
    parts = [SimpleNamespace(table=table, oid=oid, detached=None) for oid, table in enumerate(tables)]
    lists = {table: [SimpleNamespace(schema=table)] for table in tables}
    estimates = Estimates(
        lambda schema: Restriction() if cast(Any, schema) == tables[0] else Restriction(columns=frozenset({"id"}))
    )
    found = estimates.delivered(
        cast(Any, None),
        cast(Any, SimpleNamespace(round=1, parts=parts)),
        dict.fromkeys(range(3), Density(60.0, 8192.0)),
        cast(Any, SimpleNamespace(tables=dict.fromkeys(tables))),
        cast(Any, SimpleNamespace(lists=lists)),
    )
    assert found == {0: Density(60.0, 8192.0), 1: Density(30.0, 2048.0), 2: Density(30.0, 2048.0)}


def test_a_predicate_that_fails_for_a_row_does_not_show_its_value() -> None:
    piece = Piece(table="public.t", leaf="t", oid=1, filenode=1, first=0, end=1, where="email::int > 1")
    of_row = str(wrong(piece, psycopg.errors.InvalidTextRepresentation('invalid input for integer: "me@home"')))
    assert "me@home" not in of_row
    assert "table public.t: its rescan has the predicate 'email::int > 1', which fails for values of rows" in of_row
    of_table = str(wrong(piece, psycopg.errors.UndefinedColumn('column "email" does not exist')))
    assert 'which fails: column "email" does not exist. To continue' in of_table
