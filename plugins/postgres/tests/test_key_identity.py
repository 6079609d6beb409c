"""The identity of a key is its text form: what SQL calls equal and writes in two ways is two keys."""

from __future__ import annotations

from collections.abc import Iterable

import psycopg
import pytest
from cdc_testing.feeding import Feed, caught_up, started
from cdc_testing.postgres import Sql

from cdc_core import Op, SchemaChangeRules, TerminalRangefeedError, Timestamp

# By type of a key: two values that SQL calls equal, unless the type has no such values, and another one.
ALIKE: dict[str, tuple[str, str, str]] = {
    "numeric": ("1.0", "1.000", "2"),
    "float8": ("0", "-0", "1"),
    "real": ("0", "-0", "1"),
    "interval": ("1 day", "24:00:00", "1 hour"),
    "bpchar": ("a", "a ", "b"),
    "jsonb": ('{"a": 1.0}', '{"a": 1.00}', "2"),
    "numrange": ("[1.0,2)", "[1.00,2)", "[3,4)"),
    "nummultirange": ("{[1.0,2)}", "{[1.00,2)}", "{[3,4)}"),
    "numeric[]": ("{1.0}", "{1.00}", "{2}"),
    "float8[]": ("{0}", "{-0}", "{2}"),
    "app.caseless": ("é", "É", "b"),
    "app.citext": ("a", "A", "b"),
    "app.nickname": ("a", "A", "b"),
    "app.amount": ("1.0", "1.000", "2"),
    "app.money": ("(1.0)", "(1.000)", "(2)"),
    "app.amounts": ("{1.0}", "{1.000}", "{2}"),
    "app.wallet": ("(1.0)", "(1.000)", "(2)"),
    "app.span": ("[1.0,2)", "[1.00,2)", "[3,4)"),
}
DIFFERENT: dict[str, tuple[str, str]] = {
    "int": ("1", "2"),
    "bigint": ("1", "2"),
    "smallint": ("1", "2"),
    "boolean": ("true", "false"),
    "text": ("a", "A"),
    "varchar(9)": ("a", "a "),
    "char(5)": ("a", "b"),
    "name": ("a", "A"),
    '"char"': ("a", "A"),
    "bytea": (r"\x00", r"\x0000"),
    "uuid": ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"),
    "date": ("2026-01-01", "2026-01-02"),
    "time": ("00:00", "23:59:59.999999"),
    "timetz": ("12:00+00", "13:00+01"),
    "timestamp": ("2026-01-01", "2026-01-01 00:00:00.000001"),
    "timestamptz": ("2026-01-01", "2026-01-01 00:00:00.000001+00"),
    "inet": ("10.0.0.1", "10.0.0.1/8"),
    "bit(9)": ("101010101", "101010100"),
    "varbit": ("1", "10"),
    "money": ("1", "2"),
    "pg_lsn": ("0/1", "0/2"),
    "oid": ("1", "4000000000"),
    "xid8": ("1", "2"),
    "tid": ("(0,1)", "(0,2)"),
    "cidr": ("10.0.0.0/8", "10.0.0.0/16"),
    "macaddr": ("08:00:2b:01:02:03", "08:00:2b:01:02:04"),
    "macaddr8": ("08:00:2b:01:02:03:04:05", "08:00:2b:01:02:03:04:06"),
    "tsvector": ("a", "a b"),
    "tsquery": ("a", "a & b"),
    "oidvector": ("1 2", "1 3"),
    "interval day to second(3)": ("1 day", "1.001"),
    "int4range": ("[1,2)", "[1,3)"),
    "app.mood": ("well", "ill"),
    "app.feeling": ("well", "ill"),
    "app.label": ("a", "A"),
    "app.ltree": ("a.b", "a.b.c"),
    "app.isbn": ("978-0-393-04002-9", "978-0-11-000222-4"),
    "app.cube": ("(1)", "(1),(2)"),
    "app.hstore": ('"a"=>"1"', '"a"=>"2"'),
    "app.order_no": ("1", "2"),
    "hidden.seg": ("1", "2"),
    "hidden.mood": ("well", "ill"),
    "hidden.order_no": ("1", "2"),
}
FORMS = ALIKE | {type_: (one, other, other) for type_, (one, other) in DIFFERENT.items()}
NESTED = {"numeric[]", "float8[]", "app.money", "app.amounts", "app.wallet"}
"""Large values are not looked up by such keys."""
BIG = "x" * 5000


@pytest.fixture
def forms(sql: Sql) -> dict[str, tuple[str, str, str]]:
    """The types that the server has. Those that are not built in are in a schema that is not in the search path."""
    sql.execute("CREATE SCHEMA app")
    sql.execute("CREATE SCHEMA hidden AUTHORIZATION postgres")  # which the role of changefeeds may not use
    for extension in ("citext", "ltree", "isn", "cube", "hstore"):
        sql.execute(f"CREATE EXTENSION {extension} SCHEMA app")
    sql.execute("CREATE DOMAIN app.nickname AS app.citext")
    sql.execute("CREATE DOMAIN app.amount AS numeric")
    sql.execute("CREATE EXTENSION seg SCHEMA hidden")
    for schema in ("app", "hidden"):
        sql.execute(f"CREATE DOMAIN {schema}.order_no AS bigint")
        sql.execute(f"CREATE TYPE {schema}.mood AS ENUM ('well', 'ill')")
    sql.execute("CREATE TYPE app.money AS (amount numeric)")
    bases = {"amounts": "numeric[]", "wallet": "app.money", "span": "numrange", "feeling": "app.mood"}
    for name, base in bases.items():
        sql.execute(f"CREATE DOMAIN app.{name} AS {base}")
    # One of its own, for which pg_catalog has no operator.
    sql.execute("CREATE TYPE app.label")
    for name, internal, given, result in [
        ("label_in", "textin", "cstring", "app.label"),
        ("label_out", "textout", "app.label", "cstring"),
    ]:
        sql.execute(
            f"CREATE FUNCTION app.{name}({given}) RETURNS {result} LANGUAGE internal IMMUTABLE STRICT AS '{internal}'"
        )
    sql.execute("CREATE TYPE app.label (INPUT = app.label_in, OUTPUT = app.label_out, LIKE = text)")
    for name, internal in (
        ("lt", "bytealt"),
        ("le", "byteale"),
        ("eq", "byteaeq"),
        ("ge", "byteage"),
        ("gt", "byteagt"),
    ):
        sql.execute(
            f"CREATE FUNCTION app.label_{name}(app.label, app.label) RETURNS bool LANGUAGE internal IMMUTABLE STRICT"
            f" AS '{internal}'"
        )
    sql.execute(
        "CREATE FUNCTION app.label_cmp(app.label, app.label) RETURNS int LANGUAGE internal IMMUTABLE STRICT"
        " AS 'byteacmp'"
    )
    signs = {"lt": "<", "le": "<=", "eq": "===", "ge": ">=", "gt": ">"}
    for name, sign in signs.items():
        sql.execute(
            f"CREATE OPERATOR app.{sign} (FUNCTION = app.label_{name}, LEFTARG = app.label, RIGHTARG = app.label)"
        )
    numbered = ", ".join(f"OPERATOR {number} app.{sign}" for number, sign in enumerate(signs.values(), 1))
    sql.execute(
        f"CREATE OPERATOR CLASS app.label_ops DEFAULT FOR TYPE app.label USING btree AS {numbered},"
        " FUNCTION 1 app.label_cmp(app.label, app.label)"
    )
    try:
        sql.execute("CREATE COLLATION app.icu (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    except psycopg.errors.FeatureNotSupported:
        return {type_: values for type_, values in FORMS.items() if type_ != "app.caseless"}
    sql.execute("CREATE DOMAIN app.caseless AS text COLLATE app.icu")
    return FORMS


def named(types: Iterable[str]) -> dict[str, str]:
    """Return a name of a table for each type."""
    return {type_: f"t{index}" for index, type_ in enumerate(types)}


def logged(feed: Feed, table: str) -> list[tuple[str, str]]:
    """Return op and key of the rows of *table* that are not of a scan."""
    return [
        (change.op.name, repr(change.key))
        for change in feed.changes
        if change.table == f"public.{table}" and change.op is not Op.SCAN
    ]


def consumed(feed: Feed, table: str) -> set[str]:
    """Return the keys of the rows of *table* that a consumer has which ignores what is not newer."""
    newest: dict[str, tuple[Timestamp, bool]] = {}
    for change in feed.changes:
        key = repr(change.key)
        if change.table == f"public.{table}" and (key not in newest or change.updated > newest[key][0]):
            newest[key] = change.updated, change.after is not None
    return {key for key, (_, there) in newest.items() if there}


def test_an_update_of_the_form_of_a_key_is_a_delete_of_the_old_form_and_the_new_row(
    database: str, sql: Sql, forms: dict[str, tuple[str, str, str]]
) -> None:
    tables = named(forms)
    for type_, table in tables.items():
        sql.execute(f"CREATE TABLE {table} (k {type_} PRIMARY KEY, n int)")
        sql.execute(f"INSERT INTO {table} VALUES ('{forms[type_][0]}', 0)")
    with caught_up(database, *tables.values()) as feed:
        before = {table: consumed(feed, table) for table in tables.values()}
        for type_, table in tables.items():
            sql.execute(f"UPDATE {table} SET k = '{forms[type_][1]}', n = 1")
        feed.catch_up()
        for type_, table in tables.items():
            (old,), (new,) = before[table], consumed(feed, table)
            assert logged(feed, table) == [("DELETE", old), ("INSERT", new)], type_


def test_nan_is_one_key(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (k float8 PRIMARY KEY, n int)")
    sql.execute("INSERT INTO t VALUES ('NaN', 0)")
    with caught_up(database, "t") as feed:
        sql.execute("UPDATE t SET k = -k, n = 1")
        sql.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        sql.execute("UPDATE t SET n = 2")
        feed.catch_up()
        assert logged(feed, "t") == [("UPDATE", "(nan,)")] * 2


def test_after_a_detach_each_form_that_the_table_does_not_have_is_deleted(
    database: str, sql: Sql, forms: dict[str, tuple[str, str, str]]
) -> None:
    tables = named(forms)
    for type_, table in tables.items():
        one, alike, other = forms[type_]
        sql.execute(f"CREATE TABLE {table} (k {type_}, part int, PRIMARY KEY (k, part)) PARTITION BY LIST (part)")
        sql.execute(f"CREATE TABLE {table}_1 PARTITION OF {table} FOR VALUES IN (1, 2)")
        sql.execute(f"INSERT INTO {table} VALUES ('{one}', 1), ('{one}', 2)")
        sql.execute(f"INSERT INTO {table} VALUES ('{other}', 1)")
    with caught_up(database, *tables.values()) as feed:
        before = {table: consumed(feed, table) for table in tables.values()}
        for type_, table in tables.items():
            one, alike, _ = forms[type_]
            sql.execute(f"ALTER TABLE {table} DETACH PARTITION {table}_1")
            sql.execute(f"CREATE TABLE {table}_2 PARTITION OF {table} FOR VALUES IN (1, 2)")
            sql.execute(f"INSERT INTO {table} VALUES ('{alike}', 1), ('{one}', 2)")
        feed.catch_up()
        for type_, table in tables.items():
            inserted = {key for op, key in logged(feed, table) if op == "INSERT"}
            deleted = {key for op, key in logged(feed, table) if op == "DELETE"}
            assert consumed(feed, table) == inserted, type_
            assert len(before[table] & inserted) == (1 if type_ in ALIKE else 2), type_
            assert deleted == before[table] - inserted, type_


def test_no_large_value_is_unavailable_during_a_scan_whatever_the_type_of_the_key(
    database: str, sql: Sql, forms: dict[str, tuple[str, str, str]]
) -> None:
    tables = named(type_ for type_ in forms if type_ not in NESTED)
    for type_, table in tables.items():
        sql.execute(f"CREATE TABLE {table} (k {type_} PRIMARY KEY, big text, n int)")
        sql.execute(f"ALTER TABLE {table} ALTER big SET STORAGE EXTERNAL")
        sql.execute(f"INSERT INTO {table} VALUES ('{forms[type_][0]}', '{BIG}', 0), ('{forms[type_][2]}', '{BIG}', 0)")
    with started(database, *tables.values()) as feed:
        for table in tables.values():
            sql.execute(f"UPDATE {table} SET n = 1")
        feed.scan()
        for type_, table in tables.items():
            logged = [change for change in feed.changes if change.table == f"public.{table}" and change.op is Op.UPDATE]
            assert len(logged) == 2, type_
            assert [change.unavailable for change in logged] == [()] * 2, type_


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TYPE app.mood RENAME VALUE 'well' TO 'fine'",
        "ALTER TYPE app.order ADD ATTRIBUTE line int",
        "ALTER TYPE app.order RENAME ATTRIBUTE mood TO state",
    ],
)
def test_a_change_of_a_type_in_a_key_is_a_change_of_the_key(database: str, sql: Sql, statement: str) -> None:
    sql.execute("CREATE SCHEMA app")
    sql.execute("CREATE TYPE app.mood AS ENUM ('well', 'ill')")
    sql.execute("CREATE TYPE app.order AS (number int, mood app.mood)")
    sql.execute("CREATE DOMAIN app.orders AS app.order[]")
    sql.execute("CREATE TABLE t (k app.orders PRIMARY KEY, v app.mood)")
    sql.execute("CREATE TABLE u (k int PRIMARY KEY, v app.orders)")
    for table, row in {"t": """'{"(1,well)","(2,ill)"}', 'ill'""", "u": """1, '{"(1,well)"}'"""}.items():
        sql.execute(f"INSERT INTO {table} VALUES ({row})")
    with caught_up(database, "t", "u") as feed:
        (old,) = consumed(feed, "t")
        feed.close()
        sql.execute(statement)
        feed.restart()
        feed.catch_up()
        (new,) = consumed(feed, "t") - {old}
        last = [change for change in feed.changes if change.table == "public.t"][-1]
        assert (last.op, repr(last.key)) == (Op.SCAN, new)
        feed.resume(schema_changes=SchemaChangeRules(policy="stop"))
        sql.execute("ALTER TYPE app.mood RENAME VALUE 'ill' TO 'sick'")
        with pytest.raises(
            TerminalRangefeedError, match=r"table public\.t: a value .* renamed to sick, in the key; .*sick, after"
        ):
            feed.catch_up()


def test_a_value_of_an_enum_that_is_renamed_during_a_scan_ends_nothing(database: str, sql: Sql) -> None:
    sql.execute("CREATE SCHEMA app")
    sql.execute("CREATE TYPE app.mood AS ENUM ('well', 'ill')")
    sql.execute("CREATE TABLE t (k app.mood, id int, big text, n int, PRIMARY KEY (k, id))")
    sql.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    sql.execute(f"INSERT INTO t VALUES ('well', 1, '{BIG}', 0), ('ill', 1, '{BIG}', 0)")
    with started(database, "t") as feed:
        sql.execute("UPDATE t SET n = 1")
        sql.execute("ALTER TYPE app.mood RENAME VALUE 'well' TO 'fine'")
        feed.catch_up()
        found = {change.key[0]: change.unavailable for change in feed.changes if change.op is Op.UPDATE}
        assert found == {"well": ("big",), "ill": ()}
        assert {"('fine', 1)", "('ill', 1)"} <= consumed(feed, "t")
