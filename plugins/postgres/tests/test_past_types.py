"""Types that were altered or dropped since the rows in the log were written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres.nested import UnknownAttributesError, places
from cdc_rangefeed_postgres.types import TypeInfo
from cdc_testing.feeding import Change, Feed, caught_up
from cdc_testing.postgres import Sql
from hypothesis import given
from hypothesis import strategies as st

from cdc_core import Op, SchemaChangeRules, TerminalRangefeedError

NOBACKFILL = SchemaChangeRules(policy="nobackfill")

_TYPES = """
CREATE DOMAIN order_no AS bigint;
CREATE DOMAIN flag AS boolean;
CREATE DOMAIN document AS jsonb;
CREATE DOMAIN amount AS numeric(9,2);
CREATE DOMAIN narrow AS order_no CHECK (VALUE < 1000);
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE pair AS (a order_no, b mood);
CREATE TYPE outer_pair AS (p pair, list pair[], f flag);
CREATE DOMAIN pairs AS pair[];
"""
_COLUMNS: dict[str, tuple[str, str, str]] = {
    # type, a value, the type that it gets
    "n": ("order_no", "7", "bigint"),
    "narrow": ("narrow", "8", "bigint"),
    "f": ("flag", "true", "boolean"),
    "d": ("document", """'{"a": [1, 2.50]}'""", "jsonb"),
    "x": ("amount", "1.5", "numeric(9,2)"),
    "m": ("mood", "'ok'", "text"),
    "ns": ("order_no[]", "'{1,2,NULL}'", "bigint[]"),
    "fs": ("flag[]", "'{t,f}'", "boolean[]"),
    "ms": ("mood[]", "'{ok,sad}'", "text[]"),
    "p": ("pair", "'(3,ok)'", "text"),
    "ps": ("pair[]", """'{"(3,ok)","(4,)"}'""", "text"),
    "o": ("outer_pair", """'("(3,ok)","{""(3,ok)""}",t)'""", "text"),
    "pd": ("pairs", """'{"(3,ok)"}'""", "text"),
}
_DROP_TYPES = """
DROP DOMAIN pairs;
DROP TYPE outer_pair;
DROP TYPE pair;
DROP TYPE mood;
DROP DOMAIN narrow;
DROP DOMAIN amount, document, flag, order_no;
"""


def images(feed: Feed, since: int = 0) -> list[tuple[Op, Any, Any]]:
    return [(change.op, change.key, change.after) for change in feed.changes[since:]]


@pytest.fixture(params=["in one run", pytest.param("after a restart", marks=pytest.mark.slow)])
def restarts(request: pytest.FixtureRequest) -> bool:
    """Whether the changefeed is stopped while types change."""
    return bool(request.param == "after a restart")


def test_rows_have_the_types_that_they_were_written_with(database: str, sql: Sql) -> None:
    sql.execute(_TYPES)
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in _COLUMNS.items())
    values = ", ".join(value for _, value, _ in _COLUMNS.values())
    sql.execute(f"CREATE TABLE t (id order_no PRIMARY KEY, {columns})")
    sql.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    sql.execute(f"INSERT INTO t SELECT g, {values} FROM generate_series(1, 3) g")
    with caught_up(database, "t", schema_changes=NOBACKFILL, diff=True) as feed:
        scanned = feed.rows("public.t")[(1,)]
        feed.close()
        sql.execute("UPDATE t SET id = id WHERE id = 1")
        sql.execute("DELETE FROM t WHERE id = 2")
        sql.execute(f"INSERT INTO t SELECT 4, {values}")
        for name, (_, _, kind) in _COLUMNS.items():
            sql.execute(f"ALTER TABLE t ALTER COLUMN {name} TYPE {kind} USING {name}::{kind}")
        sql.execute("ALTER TABLE t ALTER COLUMN id TYPE bigint")
        sql.execute(_DROP_TYPES)
        sql.execute("INSERT INTO t (id) VALUES (5)")
        seen = len(feed.changes)
        feed.restart()
        feed.catch_up()
        assert images(feed, seen)[:3] == [
            (Op.UPDATE, (1,), scanned),
            (Op.DELETE, (2,), None),
            (Op.INSERT, (4,), scanned | {"id": 4}),
        ]
        assert feed.changes[seen].before == scanned
        assert feed.rows("public.t").keys() == {(1,), (3,), (4,), (5,)}


def test_rows_are_looked_up_by_a_key_of_a_dropped_type(database: str, sql: Sql) -> None:
    sql.execute("CREATE DOMAIN order_no AS bigint")
    sql.execute("CREATE TABLE t (id order_no PRIMARY KEY, n int, big text)")
    sql.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    sql.execute("INSERT INTO t VALUES (1, 1, repeat('x', 10000))")
    with caught_up(database, "t", options={"unchanged_toast": "lookup"}, schema_changes=NOBACKFILL) as feed:
        altering = ["UPDATE t SET n = 2", "ALTER TABLE t ALTER id TYPE bigint", "DROP DOMAIN order_no"]
        changes = change(feed, sql, *altering, restarts=True)
        assert changes[0].after == {"id": 1, "n": 2, "big": "x" * 10000}


def address_table(sql: Sql) -> None:
    """Create a table with values of a type that lost its first attribute."""
    sql.execute("CREATE TYPE address AS (zip int, street text, city text)")
    sql.execute("ALTER TYPE address DROP ATTRIBUTE zip")
    sql.execute("CREATE TYPE home AS (n int, at address)")
    sql.execute("CREATE TABLE t (k address PRIMARY KEY, v address, vs address[], h home)")
    sql.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    sql.execute(insert(1))


def insert(number: int) -> str:
    value = f"('S{number}', 'C{number}')"
    row = f"CAST(ROW{value} AS address)"
    if number == 3:
        row = f"CAST(ROW('S{number}', 'C{number}', NULL) AS address)"
    return f"INSERT INTO t VALUES ({row}, {row}, ARRAY[{row}], ROW({number}, {row}))"


def address(number: int, **more: str) -> dict[str, str]:
    """Return the row that `insert` writes, with *more* attributes."""
    fields = sorted({"street": f'"S{number}"', "city": f'"C{number}"', **more}.items())
    inner = "{" + ", ".join(f'"{name}": {value}' for name, value in fields) + "}"
    return {"k": inner, "v": inner, "vs": f"[{inner}]", "h": f'{{"at": {inner}, "n": {number}}}'}


def change(feed: Feed, sql: Sql, *statements: str, restarts: bool) -> list[Change]:
    """Run *statements* while the changefeed runs, or while it is stopped, and return the changes that it delivers."""
    seen = len(feed.changes)
    if restarts:
        feed.close()
    for statement in statements:
        sql.execute(statement)
    if restarts:
        feed.restart()
    feed.catch_up()
    return feed.changes[seen:]


def test_attributes_that_are_added_are_null_in_rows_of_before(database: str, sql: Sql, *, restarts: bool) -> None:
    address_table(sql)
    with caught_up(database, "t", diff=True, schema_changes=NOBACKFILL) as feed:
        assert feed.changes[0].after == address(1)
        changes = change(
            feed,
            sql,
            "UPDATE t SET v = v",
            insert(2),
            "ALTER TYPE address ADD ATTRIBUTE country text",
            insert(3),
            "DELETE FROM t WHERE (k).street = 'S2'",
            restarts=restarts,
        )
        first, second, third = (address(number, country="null") for number in (1, 2, 3))
        assert [(found.op, found.key, found.before, found.after) for found in changes] == [
            (Op.UPDATE, (first["k"],), first, first),
            (Op.INSERT, (second["k"],), None, second),
            (Op.INSERT, (third["k"],), None, third),
            (Op.DELETE, (second["k"],), second, None),
        ]
        changes = change(feed, sql, "UPDATE t SET v = NULL", restarts=not restarts)
        assert {found.key for found in changes} == {(first["k"],), (third["k"],)}


def test_attributes_that_are_dropped_leave_the_others(database: str, sql: Sql, *, restarts: bool) -> None:
    address_table(sql)
    with caught_up(database, "t", diff=True, schema_changes=NOBACKFILL) as feed:
        drop = "ALTER TYPE address DROP ATTRIBUTE street"
        changes = change(feed, sql, insert(2), drop, "UPDATE t SET v = v", restarts=restarts)
        assert [found.after and found.after["v"] for found in changes] == [
            '{"city": "C2"}',
            '{"city": "C1"}',
            '{"city": "C2"}',
        ]


def test_a_row_that_can_be_of_two_times_ends_the_changefeed(database: str, sql: Sql, *, restarts: bool) -> None:
    address_table(sql)
    with caught_up(database, "t", diff=True) as feed:
        swap = "ALTER TYPE address DROP ATTRIBUTE street, ADD ATTRIBUTE country text"
        with pytest.raises(
            TerminalRangefeedError, match=r"public\.t, column 'k': type public\.address lost " r"and gained"
        ):
            change(feed, sql, insert(2), swap, restarts=restarts)


def between_looks(type_: str, value: str) -> list[str]:
    """Return statements that give column v a type, write a row with *value*, and drop the type."""
    return [
        f"CREATE SCHEMA s; {type_}; ALTER TABLE t ALTER v TYPE s.later USING NULL",
        "INSERT INTO t VALUES (1, NULL)",
        f"INSERT INTO t VALUES (2, {value})",
        "ALTER TABLE t ALTER v TYPE text; DROP TYPE s.later",
        "INSERT INTO t VALUES (3, 'text')",
    ]


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [("bigint", "2", 2), ("boolean", "true", True), ("jsonb", "'[1]'", "[1]"), ("int[]", "'{1,2}'", "[1, 2]")],
)
def test_a_domain_that_nobody_saw_is_read_as_its_type(
    database: str, sql: Sql, type_: str, value: str, expected: object
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with caught_up(database, "t", schema_changes=NOBACKFILL) as feed:
        changes = change(feed, sql, *between_looks(f"CREATE DOMAIN s.later AS {type_}", value), restarts=True)
        assert [found.after and found.after["v"] for found in changes] == [None, expected, "text"]


def test_another_type_that_nobody_saw_ends_the_changefeed(database: str, sql: Sql, *, restarts: bool) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    error = r"public\.t, column 'v': .* the type s\.later, or a domain"
    with caught_up(database, "t") as feed, pytest.raises(TerminalRangefeedError, match=error):
        change(feed, sql, *between_looks("CREATE TYPE s.later AS ENUM ('ok')", "'ok'"), restarts=restarts)


def test_a_token_of_an_earlier_version_has_no_types(database: str, sql: Sql) -> None:
    address_table(sql)
    with caught_up(database, "t", diff=True) as feed:
        feed.close()
        sql.execute(insert(2))
        feed.saved = {name: value for name, value in feed.token.items() if name != "types"} | {"catalog": "other"}
        feed.restart()
        feed.catch_up()
        assert feed.changes[-1].after == address(2)


def times_of(then: set[int], last: int, steps: list[int]) -> list[tuple[tuple[int, ...], int]]:
    """Return the attributes at each time, and how many there had been: 0 in *steps* adds one, other steps drop one."""
    times = [(tuple(sorted(then)), last)]
    for step in steps:
        numbers, last = times[-1]
        if step == 0:
            times.append(((*numbers, last + 1), last + 1))
        elif numbers:
            gone = numbers[step % len(numbers)]
            times.append((tuple(number for number in numbers if number != gone), last))
    return times


@given(
    st.sets(st.integers(1, 4), min_size=1), st.integers(0, 2), st.lists(st.integers(0, 4), max_size=5), st.booleans()
)
def test_places_are_right_or_unknown(then: set[int], dropped: int, steps: list[int], known: bool) -> None:
    times = times_of(then, max(then) + dropped, steps)
    now, last = times[-1]
    before = times[0] if known and times[0] != times[-1] else None
    fields = tuple((f"c{number}", 25, -1) for number in now)
    info = TypeInfo(oid=1, name="t", typtype="c", fields=fields, numbers=now, attributes=last, before=before)
    assert TypeInfo.from_json(json.loads(json.dumps(info.to_json()))) == info
    info = replace(info, mixed=before is not None)
    for numbers, _ in times:
        expected = tuple(numbers.index(number) if number in numbers else None for number in now)
        if not info.mixed and len(numbers) == len(now):
            continue  # taken for a row of now
        try:
            assert places(info, len(numbers)) == expected
        except UnknownAttributesError:
            assert not known or (0 in steps and any(steps)) or len(then) - len(now) > 1


def test_a_transaction_that_is_open_while_a_type_changes(database: str, sql: Sql, *, restarts: bool) -> None:
    address_table(sql)
    with caught_up(database, "t", diff=True, schema_changes=NOBACKFILL) as feed, psycopg.connect(database) as other:
        other.execute(insert(2))
        change(feed, sql, "ALTER TYPE address ADD ATTRIBUTE country text", restarts=restarts)
        change(feed, sql, insert(3), restarts=restarts)
        other.execute("UPDATE t SET v = v WHERE (k).street = 'S1'")
        other.commit()
        changes = change(feed, sql, restarts=restarts)
        assert [found.after for found in changes] == [address(number, country="null") for number in (2, 1)]
