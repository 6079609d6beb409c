"""Columns of every kind that change: what arrives before and after, from scan and log, with a restart in between."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import fastavro
import psycopg
import pytest
from cdc_encoder_avro.encoder import AvroEncoder
from cdc_encoder_avro.options import AvroOptions
from cdc_testing.feeding import Feed, caught_up, started
from cdc_testing.postgres import Sql, table_of

from cdc_core import EncoderContext, Envelope, Op, Rescan, RowBatch, SchemaChangeRules

NOBACKFILL = SchemaChangeRules(policy="nobackfill")


@pytest.fixture(params=["in one run", pytest.param("after a restart", marks=pytest.mark.slow)])
def restarts(request: pytest.FixtureRequest) -> bool:
    """Whether the changefeed is stopped while the table changes."""
    return bool(request.param == "after a restart")


@pytest.fixture
def t(sql: Sql) -> Sql:
    """A connection to a database with the types that the tests change."""
    create_types(sql)
    return sql


def create_types(sql: Sql) -> None:
    sql.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    sql.execute("CREATE DOMAIN percent AS int CHECK (VALUE BETWEEN 0 AND 100)")
    sql.execute("CREATE DOMAIN code AS varchar(3)")
    sql.execute("CREATE TYPE size AS (w int, h int)")


@contextmanager
def stopped(feed: Feed, stops: bool) -> Iterator[None]:
    """Stop the changefeed for the block if it *stops*; catch up at the end."""
    if stops:
        feed.close()
    yield
    if stops:
        feed.restart()
    feed.catch_up()


def change(feed: Feed, sql: Sql, *statements: str, restarts: bool) -> None:
    """Run *statements* while the changefeed runs, or while it is stopped."""
    with stopped(feed, restarts):
        for statement in statements:
            sql.execute(statement)


def text_table(sql: Sql, columns: str) -> dict[Any, dict[str, Any]]:
    return table_of(sql, f"SELECT {columns} FROM t")


class Case(NamedTuple):
    """The type of column v, its value in three rows, the select list that shows the values as they arrive."""

    type: str
    value: str
    shown: str
    again: bool
    """Whether the rows of the table are read again."""
    statements: list[str]
    """Changes, with rows written between them."""


def case_of(block: str) -> tuple[str, Case]:
    heading, *changes = block.splitlines()
    name, type_, value, shown, *again = heading.split(" | ")
    return name, Case(type_, value, shown, bool(again), [change.strip() for change in changes])


TEXT = """\
a domain's check | percent | 50 | id, v
    INSERT INTO t VALUES (10, 99)
    ALTER DOMAIN percent DROP CONSTRAINT percent_check
    INSERT INTO t VALUES (11, 101)
    ALTER DOMAIN percent ADD CHECK (VALUE < 1000)
    UPDATE t SET v = 102 WHERE id = 1
a domain's default and null | percent | 50 | id, v
    ALTER DOMAIN percent SET DEFAULT 7
    INSERT INTO t (id) VALUES (10)
    ALTER DOMAIN percent SET NOT NULL
    INSERT INTO t (id) VALUES (11)
    ALTER DOMAIN percent RENAME TO share
    INSERT INTO t (id) VALUES (12)
another domain | percent | 50 | id, v::text AS v | again
    INSERT INTO t VALUES (10, 10)
    CREATE DOMAIN share AS numeric(6,3)
    ALTER TABLE t ALTER COLUMN v TYPE share USING v / 100.0
    INSERT INTO t VALUES (11, 0.5)
the base type of a domain | percent | 50 | id, v | again
    INSERT INTO t VALUES (10, 10)
    ALTER TABLE t ALTER COLUMN v TYPE int
    INSERT INTO t VALUES (11, 1000)
a domain over text | code | 'abc' | id, v | again
    INSERT INTO t VALUES (10, 'xyz')
    ALTER TABLE t ALTER COLUMN v TYPE text
    INSERT INTO t VALUES (11, 'longer')
an enum gets a value | mood | 'ok' | id, v::text AS v
    INSERT INTO t VALUES (10, 'sad')
    ALTER TYPE mood ADD VALUE 'happy'
    INSERT INTO t VALUES (11, 'happy')
    ALTER TYPE mood ADD VALUE 'awful' BEFORE 'sad'
    UPDATE t SET v = 'awful' WHERE id = 1
an enum's value is renamed | mood | 'ok' | id, v::text AS v | again
    INSERT INTO t VALUES (10, 'ok')
    ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'
    INSERT INTO t VALUES (11, 'fine')
an enum is renamed | mood | 'ok' | id, v::text AS v
    ALTER TYPE mood RENAME TO temper
    INSERT INTO t VALUES (11, 'sad')
an enum in an array is renamed | mood[] | '{ok,sad}' | id, replace(array_to_json(v)::text, ',', ', ') AS v | again
    INSERT INTO t VALUES (10, '{ok}')
    ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'
    INSERT INTO t VALUES (11, '{fine}')
an enum becomes text | mood | 'ok' | id, v | again
    INSERT INTO t VALUES (10, 'sad')
    ALTER TABLE t ALTER COLUMN v TYPE text USING 'was ' || v
    INSERT INTO t VALUES (11, 'anything')
text becomes an enum that is new | text | 'low' | id, v::text AS v | again
    INSERT INTO t VALUES (10, 'high')
    CREATE TYPE level AS ENUM ('low', 'high')
    ALTER TABLE t ALTER COLUMN v TYPE level USING v::level
    INSERT INTO t VALUES (11, 'low')
varchar becomes text | varchar(10) | 'abc' | id, v | again
    INSERT INTO t VALUES (10, 'x')
    ALTER TABLE t ALTER COLUMN v TYPE text
    INSERT INTO t VALUES (11, repeat('long', 10))
int becomes bigint | int | 1 | id, v | again
    INSERT INTO t VALUES (10, 2147483647)
    ALTER TABLE t ALTER COLUMN v TYPE bigint
    INSERT INTO t VALUES (11, 9223372036854775807)
int becomes text | int | 1 | id, v | again
    INSERT INTO t VALUES (10, 2)
    ALTER TABLE t ALTER COLUMN v TYPE text USING 'v' || v
    INSERT INTO t VALUES (11, 'v3')
    ALTER TABLE t ALTER COLUMN v TYPE int USING substr(v, 2)::int * 10
    INSERT INTO t VALUES (12, 4)
a column is dropped and added again | int | 1 | id, v | again
    INSERT INTO t VALUES (10, 2)
    ALTER TABLE t DROP COLUMN v
    INSERT INTO t VALUES (11)
    ALTER TABLE t ADD COLUMN v int
    INSERT INTO t VALUES (12, 5)
a column is dropped and added again with another type | int | 1 | id, v | again
    INSERT INTO t VALUES (10, 2)
    ALTER TABLE t DROP COLUMN v
    ALTER TABLE t ADD COLUMN v text DEFAULT 'new'
    INSERT INTO t VALUES (12, 'five')
a composite type gains an attribute | size | '(1,2)' | id, to_jsonb(v)::text AS v
    INSERT INTO t VALUES (10, '(3,4)')
    ALTER TYPE size ADD ATTRIBUTE d int
    UPDATE t SET v = v
    INSERT INTO t VALUES (11, '(5,6,7)')
a composite type loses an attribute | size | '(1,2)' | id, to_jsonb(v)::text AS v | again
    INSERT INTO t VALUES (10, '(3,4)')
    ALTER TYPE size DROP ATTRIBUTE w
    INSERT INTO t VALUES (11, ROW(5))"""
CASES = dict(map(case_of, re.split(r"\n(?=\w)", TEXT)))


@pytest.fixture
def cases(sql: Sql) -> dict[str, str]:
    """The tables of all cases, each in a schema of its own with types of its own: their names by case."""
    tables = {}
    sql.prepare_threshold = None  # the same text means other tables
    for number, (name, case) in enumerate(CASES.items()):
        sql.execute(f"CREATE SCHEMA c{number}; SET search_path = c{number}")
        create_types(sql)
        sql.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {case.type})")
        sql.execute(f"INSERT INTO t SELECT g, {case.value} FROM generate_series(1, 3) g")
        tables[name] = f"c{number}.t"
    return tables


def run_in(sql: Sql, table: str, *statements: str) -> None:
    """Run *statements* in the schema of *table*."""
    sql.execute(f"SET search_path = {table.partition('.')[0]}")
    for statement in statements:
        sql.execute(statement)


def altered(sql: Sql, cases: dict[str, str]) -> None:
    for case, table in cases.items():
        run_in(sql, table, *CASES[case].statements)


def assert_agree(feed: Feed, sql: Sql, cases: dict[str, str]) -> None:
    """The consumer's rows of each case are those of its table."""
    for case, table in cases.items():
        run_in(sql, table)
        assert feed.rows(table) == text_table(sql, CASES[case].shown), case


def test_the_rows_are_those_of_the_table(database: str, sql: Sql, cases: dict[str, str], *, restarts: bool) -> None:
    with caught_up(database, *cases.values()) as feed:
        with stopped(feed, restarts):
            altered(sql, cases)
        assert_agree(feed, sql, cases)
        scans = Counter(change.table for change in feed.changes if change.op is Op.SCAN)
        assert {case: scans[table] > 3 for case, table in cases.items()} == {
            case: of.again for case, of in CASES.items()
        }
        with stopped(feed, not restarts):
            for table in cases.values():
                run_in(sql, table, "DELETE FROM t WHERE id = 2", "UPDATE t SET id = 20 WHERE id = 3")
        assert_agree(feed, sql, cases)


def test_scan_and_log_agree_after_the_change(database: str, sql: Sql, cases: dict[str, str]) -> None:
    altered(sql, cases)
    with caught_up(database, *cases.values()) as feed:
        assert_agree(feed, sql, cases)
        first = {table: dict(feed.rows(table)) for table in cases.values()}
        feed.changes.clear()
        for table in cases.values():
            run_in(sql, table, "UPDATE t SET id = id")
        feed.catch_up()
        for case, table in cases.items():
            changes = [change for change in feed.changes if change.table == table]
            assert {change.key: change.after for change in changes} == first[table], case


def test_rows_have_the_name_that_their_column_had(database: str, t: Sql, *, restarts: bool) -> None:
    t.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    t.execute("INSERT INTO t VALUES (1, 1)")
    renaming = [
        "INSERT INTO t VALUES (2, 2)",
        "ALTER TABLE t RENAME COLUMN v TO w",
        "INSERT INTO t VALUES (3, 3)",
        "ALTER TABLE t RENAME COLUMN w TO v",
        "INSERT INTO t VALUES (4, 4)",
        "ALTER TABLE t RENAME COLUMN v TO x",
    ]
    with caught_up(database, "t") as feed:
        change(feed, t, *renaming, restarts=restarts)
        assert [change.after for change in feed.changes] == [
            {"id": 1, "v": 1},
            {"id": 2, "v": 2},
            {"id": 3, "w": 3},
            {"id": 4, "v": 4},
        ]
        change(feed, t, "UPDATE t SET x = x + 1", restarts=not restarts)
        assert feed.rows("public.t") == text_table(t, "id, x")


def test_with_nobackfill_only_later_rows_have_the_new_form(database: str, t: Sql, *, restarts: bool) -> None:
    t.execute("CREATE TABLE t (id int PRIMARY KEY, v mood)")
    t.execute("INSERT INTO t VALUES (1, 'ok')")
    with caught_up(database, "t", schema_changes=NOBACKFILL) as feed:
        renaming = ["ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'", "INSERT INTO t VALUES (2, 'fine')"]
        change(feed, t, *renaming, restarts=restarts)
        assert feed.rows("public.t") == {(1,): {"id": 1, "v": "ok"}, (2,): {"id": 2, "v": "fine"}}


def next_rows(feed: Feed) -> RowBatch:
    """Return the rows of the next step that has any."""
    while True:
        planned = feed.plan()
        for slice_ in planned[1] if planned is not None else ():
            for item in feed.reader.read(slice_):
                if isinstance(item, RowBatch):
                    return item
        feed.step()


def test_a_new_enum_value_is_a_symbol_of_the_avro_enum(database: str, t: Sql) -> None:
    options = AvroOptions(avro_enum="enum")
    encoder = AvroEncoder(EncoderContext(changefeed="c", envelope=Envelope(), options=options, output="files"))
    t.execute("CREATE TABLE t (id int PRIMARY KEY, v mood)")
    t.execute("INSERT INTO t VALUES (1, 'ok')")

    def file_of(rows: RowBatch) -> tuple[list[object], str]:
        """Return the values of v in a file of *rows*, and the schema that the file has."""
        body = encoder.open_body("t")
        found = fastavro.reader(io.BytesIO(bytes(body.write(rows)) + bytes(body.finish())))
        return [message["after"]["v"] for message in found], json.dumps(found.writer_schema)

    with started(database, "t") as feed:
        first = next_rows(feed)
        values, schema = file_of(first)
        assert (values, '["sad", "ok"]' in schema) == (["ok"], True)
        feed.catch_up()
        t.execute("ALTER TYPE mood ADD VALUE 'happy'")
        t.execute("INSERT INTO t VALUES (2, 'happy')")
        following = next_rows(feed)
        values, schema = file_of(following)
        assert (values, '["sad", "ok", "happy"]' in schema) == (["happy"], True)
        assert following.schema.version == first.schema.version + 1


@pytest.mark.parametrize(
    ("kind", "statement"),
    [("mood", "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'"), ("size[]", "ALTER TYPE size RENAME ATTRIBUTE w TO x")],
)
def test_nothing_is_resolved_while_a_type_may_be_changing(database: str, t: Sql, kind: str, statement: str) -> None:
    t.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {kind})")
    with caught_up(database, "t") as feed, psycopg.connect(database) as other:
        other.execute(statement)
        begun = feed.now()
        for number in range(5):
            t.execute("INSERT INTO t VALUES (%s)", [number])
            feed.step()
        assert len(feed.rows("public.t")) == 5
        assert max(feed.resolved.values()) < begun
        other.commit()
        feed.catch_up()


@pytest.mark.parametrize(
    "statements",
    [
        ("RENAME v TO w", "ADD v text"),
        ("RENAME v TO x", "RENAME w TO v", "RENAME x TO w"),
        ("RENAME v TO x", "DROP w", "RENAME x TO w", "ADD v text"),
    ],
)
@pytest.mark.parametrize("each", [True, False], ids=["step by step", "at once"])
def test_rows_are_read_again_when_a_column_takes_the_name_of_another_one(
    database: str, sql: Sql, statements: tuple[str, ...], *, each: bool
) -> None:
    other = "" if statements[0].endswith("w") else ", w text DEFAULT 'w'"
    sql.execute(f"CREATE TABLE t (id int PRIMARY KEY, v text{other})")
    sql.execute("INSERT INTO t VALUES (1, 'v')")
    with caught_up(database, "t") as feed:
        with nullcontext() if each else sql.transaction():
            for statement in statements:
                sql.execute(f"ALTER TABLE t {statement}")
                if each:
                    feed.catch_up()
        feed.catch_up()
        assert sum(change.op is Op.SCAN for change in feed.changes) == 2
        (row,), (present,) = feed.rows("public.t").values(), text_table(sql, "*").values()
        assert row | present == present | row, "a value by the name of another column"


@pytest.mark.parametrize("policy", ["backfill", "stop"])
def test_a_column_may_have_a_name_again_that_only_itself_had(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture, policy: Any
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql.execute("INSERT INTO t VALUES (1, 'v')")
    with caught_up(database, "t", schema_changes=SchemaChangeRules(policy=policy)) as feed:
        caplog.set_level("INFO", "cdc_rangefeed_postgres.boundaries")
        for statement in ("RENAME v TO w", "RENAME w TO x", "RENAME x TO w", "RENAME w TO v"):
            sql.execute(f"ALTER TABLE t {statement}")
            feed.catch_up()
        names = [record.getMessage().rpartition(" ")[2] for record in caplog.records if "renamed" in record.message]
        assert names == ["w", "x", "w", "v"]
        assert feed.rows("public.t") == text_table(sql, "*")
        assert len(feed.changes) == 1


@pytest.mark.parametrize("reading", ["a backfill", "a rescan", None])
def test_a_column_may_have_the_name_that_another_one_had_before_the_rows_were_read(
    database: str, sql: Sql, reading: str | None
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql.execute("INSERT INTO t VALUES (1, 'v')")
    with caught_up(database, "t") as feed:
        sql.execute("ALTER TABLE t RENAME v TO w")
        feed.catch_up()
        if reading == "a backfill":
            sql.execute("ALTER TABLE t ADD c int DEFAULT 7")
        elif reading == "a rescan":
            feed.ask(Rescan(table=f"{sql.info.dbname}.public.t"))
        feed.catch_up()
        scans = sum(change.op is Op.SCAN for change in feed.changes)
        assert scans == 1 + (reading is not None)
        sql.execute("ALTER TABLE t ADD v text")
        feed.catch_up()
        assert sum(change.op is Op.SCAN for change in feed.changes) == scans + (reading is None)
        assert feed.rows("public.t") == {
            (1,): {"id": 1, "w": "v"} | ({"c": 7} if reading == "a backfill" else {}) | ({} if reading else {"v": None})
        }
