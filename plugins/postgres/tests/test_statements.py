"""Every statement in the tables of docs/schema-statements.md has the effect that the page says."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_testing.feeding import Feed, feed_of
from cdc_testing.postgres import Sql, another_tablespace, table_of

from cdc_core import Op, SchemaChangeRules, TerminalRangefeedError

PAGE = Path(__file__).parents[3] / "docs" / "schema-statements.md"
HEADINGS = ("## Columns", "## The table", "## Other statements")
EFFECTS = {"none", "rows again", "scanned", "deleted", "ends", "waits", "refused"}
OF_DATABASE = re.compile("SCHEMA|TABLESPACE|PUBLICATION")
"""Statements about more than a table and what is in its schema."""
TABLE = (
    "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL DEFAULT 0, name varchar(20), amount numeric(6,2))",
    "INSERT INTO t VALUES (1, 1, 'one', 1.5), (2, 2, 'two', 2.5), (3, 3, 'three', 3.5)",
)
PARTITIONED = (
    "CREATE TABLE t (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE high PARTITION OF t FOR VALUES FROM (100) TO (200)",
    "INSERT INTO t VALUES (1, 1), (2, 2), (101, 101)",
)
ROLE = "DO $$ BEGIN IF to_regrole('other') IS NULL THEN CREATE ROLE other; END IF; END $$"


@dataclass(frozen=True)
class Form:
    """One form of a statement, run after the statements *before*, on a plain table or on a partitioned one."""

    statements: tuple[str, ...]
    before: tuple[str, ...] = ()
    table: tuple[str, ...] = TABLE


def alter(*forms: str, before: tuple[str, ...] = (), table: tuple[str, ...] = TABLE) -> Form:
    """Return the statements `ALTER TABLE t` with each of *forms*."""
    return Form(tuple(f"ALTER TABLE t {form}" for form in forms), before, table)


def run(*statements: str, before: tuple[str, ...] = (), table: tuple[str, ...] = TABLE) -> Form:
    return Form(statements, before, table)


def added(*columns: str) -> tuple[str, ...]:
    return tuple(f"ALTER TABLE t ADD COLUMN {column}" for column in columns)


STORED = added("g int GENERATED ALWAYS AS (v * 2) STORED")
VIRTUAL = added("g int GENERATED ALWAYS AS (v * 2) VIRTUAL")
IDENTITY = added("n int GENERATED ALWAYS AS IDENTITY")
CHECKED = ("ALTER TABLE t ADD CONSTRAINT c CHECK (v > 0) NOT VALID",)
REFERRED = (
    "CREATE TABLE u (id int PRIMARY KEY)",
    "INSERT INTO u VALUES (1), (2), (3)",
    "ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (v) REFERENCES u",
)
TRIGGER = (
    "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION nothing()",
)
RULE = ("CREATE TABLE u (id int)", "CREATE RULE r AS ON DELETE TO t DO ALSO INSERT INTO u VALUES (OLD.id)")
UNIQUE = ("CREATE UNIQUE INDEX by_v ON t (v)", "CREATE UNIQUE INDEX by_id ON t (id)")
ENUM = ("CREATE TYPE mood AS ENUM ('sad', 'ok')", *added("m mood"), "UPDATE t SET m = 'ok'")
COMPOSITE = ("CREATE TYPE size AS (w int, h int)", *added("s size"), "UPDATE t SET s = '(1,2)'")
DOMAIN = ("CREATE DOMAIN percent AS int CONSTRAINT low CHECK (VALUE >= 0)", *added("p percent"), "UPDATE t SET p = 5")

FORMS = {
    "ADD COLUMN without a default": alter("ADD COLUMN c int"),
    "ADD COLUMN … DEFAULT": alter("ADD COLUMN c int DEFAULT 7"),
    "ADD COLUMN … serial": alter("ADD COLUMN c serial"),
    "ADD COLUMN … GENERATED … AS IDENTITY": alter("ADD COLUMN c int GENERATED ALWAYS AS IDENTITY"),
    "ADD COLUMN … GENERATED ALWAYS AS (…) STORED": run(*STORED),
    "ADD COLUMN … GENERATED ALWAYS AS (…) VIRTUAL": run(*VIRTUAL),
    "DROP COLUMN": alter("DROP COLUMN v"),
    "DROP COLUMN of a stored column": alter("DROP COLUMN g", before=STORED),
    "DROP COLUMN of a virtual column": alter("DROP COLUMN g", before=VIRTUAL),
    "DROP COLUMN of a column of the key": alter("DROP COLUMN id"),
    "ALTER COLUMN … TYPE": alter("ALTER COLUMN v TYPE bigint"),
    "ALTER COLUMN … TYPE … USING": alter("ALTER COLUMN v TYPE int USING v * 10"),
    "ALTER COLUMN … TYPE to a longer varchar(n) or numeric(p,s)": alter(
        "ALTER COLUMN name TYPE varchar(30)", "ALTER COLUMN amount TYPE numeric(8,2)"
    ),
    "RENAME COLUMN": alter("RENAME COLUMN v TO w"),
    "RENAME COLUMN to the name that another column had": run(
        "BEGIN; ALTER TABLE t RENAME v TO w; ALTER TABLE t RENAME n TO v; ALTER TABLE t RENAME w TO n; COMMIT",
        before=added("n int NOT NULL DEFAULT 7"),
    ),
    "RENAME COLUMN of a column of the key": alter("RENAME COLUMN id TO no"),
    "ALTER COLUMN … SET DEFAULT": alter("ALTER COLUMN v SET DEFAULT 5"),
    "ALTER COLUMN … DROP DEFAULT": alter("ALTER COLUMN v DROP DEFAULT"),
    "ALTER COLUMN … SET NOT NULL": alter("ALTER COLUMN name SET NOT NULL"),
    "ALTER COLUMN … DROP NOT NULL": alter("ALTER COLUMN v DROP NOT NULL"),
    "ALTER COLUMN … SET EXPRESSION of a stored column": alter(
        "ALTER COLUMN g SET EXPRESSION AS (v * 3)", before=STORED
    ),
    "ALTER COLUMN … SET EXPRESSION of a virtual column": alter(
        "ALTER COLUMN g SET EXPRESSION AS (v * 3)", before=VIRTUAL
    ),
    "ALTER COLUMN … DROP EXPRESSION": alter("ALTER COLUMN g DROP EXPRESSION", before=STORED),
    "ALTER COLUMN … ADD GENERATED … AS IDENTITY": alter(
        "ALTER COLUMN i DROP DEFAULT", "ALTER COLUMN i ADD GENERATED ALWAYS AS IDENTITY",
        before=added("i int NOT NULL DEFAULT 5"),
    ),
    "ALTER COLUMN … SET GENERATED": alter("ALTER COLUMN n SET GENERATED BY DEFAULT", before=IDENTITY),
    "ALTER COLUMN … RESTART": alter("ALTER COLUMN n RESTART WITH 100", before=IDENTITY),
    "ALTER COLUMN … DROP IDENTITY": alter("ALTER COLUMN n DROP IDENTITY", before=IDENTITY),
    "ALTER COLUMN … SET STATISTICS": alter("ALTER COLUMN v SET STATISTICS 50"),
    "ALTER COLUMN … SET (…)": alter("ALTER COLUMN v SET (n_distinct = 5)"),
    "ALTER COLUMN … RESET (…)": alter("ALTER COLUMN v RESET (n_distinct)"),
    "ALTER COLUMN … SET STORAGE": alter("ALTER COLUMN name SET STORAGE EXTERNAL"),
    "ALTER COLUMN … SET COMPRESSION": alter("ALTER COLUMN name SET COMPRESSION pglz"),
    "ADD CHECK": alter("ADD CHECK (v > 0)"),
    "ADD FOREIGN KEY": alter("ADD FOREIGN KEY (v) REFERENCES u", before=REFERRED[:2]),
    "ADD UNIQUE": alter("ADD UNIQUE (v)"),
    "ADD UNIQUE USING INDEX": alter("ADD UNIQUE USING INDEX by_v", before=UNIQUE),
    "ADD EXCLUDE": alter("ADD EXCLUDE USING btree (v WITH =)"),
    "ADD NOT NULL": alter("ADD CONSTRAINT c NOT NULL name"),
    "ADD … NOT VALID": run(*CHECKED),
    "VALIDATE CONSTRAINT": alter("VALIDATE CONSTRAINT c", before=CHECKED),
    "ALTER CONSTRAINT": alter("ALTER CONSTRAINT f DEFERRABLE", before=REFERRED),
    "RENAME CONSTRAINT": alter("RENAME CONSTRAINT c TO d", before=CHECKED),
    "DROP CONSTRAINT": alter("DROP CONSTRAINT c", before=CHECKED),
    "DROP CONSTRAINT, ADD PRIMARY KEY with the same columns": alter("DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id)"),
    "DROP CONSTRAINT, ADD PRIMARY KEY with other columns": alter("DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, v)"),
    "DROP CONSTRAINT of the primary key": alter("DROP CONSTRAINT t_pkey"),
    "DISABLE TRIGGER": alter("DISABLE TRIGGER g", before=TRIGGER),
    "ENABLE TRIGGER": alter("ENABLE TRIGGER g", before=TRIGGER),
    "ENABLE REPLICA TRIGGER": alter("ENABLE REPLICA TRIGGER g", before=TRIGGER),
    "ENABLE ALWAYS TRIGGER": alter("ENABLE ALWAYS TRIGGER g", before=TRIGGER),
    "DISABLE RULE": alter("DISABLE RULE r", before=RULE),
    "ENABLE RULE": alter("ENABLE RULE r", before=RULE),
    "ENABLE REPLICA RULE": alter("ENABLE REPLICA RULE r", before=RULE),
    "ENABLE ALWAYS RULE": alter("ENABLE ALWAYS RULE r", before=RULE),
    "ENABLE ROW LEVEL SECURITY": alter("ENABLE ROW LEVEL SECURITY"),
    "DISABLE ROW LEVEL SECURITY": alter("DISABLE ROW LEVEL SECURITY"),
    "FORCE ROW LEVEL SECURITY": alter("FORCE ROW LEVEL SECURITY"),
    "NO FORCE ROW LEVEL SECURITY": alter("NO FORCE ROW LEVEL SECURITY"),
    "CLUSTER ON": alter("CLUSTER ON t_pkey"),
    "SET WITHOUT CLUSTER": alter("SET WITHOUT CLUSTER"),
    "SET WITHOUT OIDS": alter("SET WITHOUT OIDS"),
    "SET ACCESS METHOD": alter("SET ACCESS METHOD heap"),
    "SET TABLESPACE": alter("SET TABLESPACE elsewhere"),
    "ALL IN TABLESPACE": run("ALTER TABLE ALL IN TABLESPACE pg_default SET TABLESPACE elsewhere"),
    "SET (…)": alter("SET (fillfactor = 50)"),
    "RESET (…)": alter("RESET (fillfactor)"),
    "SET LOGGED": alter("SET LOGGED"),
    "SET UNLOGGED": alter("SET UNLOGGED"),
    "INHERIT": alter("INHERIT above", before=("CREATE TABLE above (v int NOT NULL)",)),
    "NO INHERIT": alter(
        "NO INHERIT above", before=("CREATE TABLE above (v int NOT NULL)", "ALTER TABLE t INHERIT above")
    ),
    "OF": alter(
        "OF shape", before=("CREATE TYPE shape AS (id int, v int, name varchar(20), amount numeric(6,2))",)
    ),
    "NOT OF": alter(
        "NOT OF",
        before=(
            "CREATE TYPE shape AS (id int, v int, name varchar(20), amount numeric(6,2))",
            "ALTER TABLE t OF shape",
        ),
    ),
    "OWNER TO": alter("OWNER TO other", before=(ROLE,)),
    "REPLICA IDENTITY FULL": alter("REPLICA IDENTITY FULL"),
    "REPLICA IDENTITY DEFAULT": alter("REPLICA IDENTITY DEFAULT", before=("ALTER TABLE t REPLICA IDENTITY FULL",)),
    "REPLICA IDENTITY USING INDEX with the columns of the key": alter(
        "REPLICA IDENTITY USING INDEX by_id", before=UNIQUE
    ),
    "REPLICA IDENTITY USING INDEX with other columns": alter("REPLICA IDENTITY USING INDEX by_v", before=UNIQUE),
    "REPLICA IDENTITY NOTHING": alter("REPLICA IDENTITY NOTHING"),
    "RENAME TO": alter("RENAME TO u"),
    "SET SCHEMA": alter("SET SCHEMA away", before=("CREATE SCHEMA away",)),
    "ATTACH PARTITION with rows": alter(
        "ATTACH PARTITION more FOR VALUES FROM (200) TO (300)",
        before=("CREATE TABLE more (id int PRIMARY KEY, v int)", "INSERT INTO more VALUES (201, 201)"),
        table=PARTITIONED,
    ),
    "DETACH PARTITION": alter("DETACH PARTITION high", table=PARTITIONED),
    "DETACH PARTITION … CONCURRENTLY": alter("DETACH PARTITION high CONCURRENTLY", table=PARTITIONED),
    "ATTACH PARTITION of the table to another one": run(
        "ALTER TABLE above ATTACH PARTITION t FOR VALUES FROM (0) TO (100)",
        before=("CREATE TABLE above (LIKE t) PARTITION BY RANGE (id)",),
    ),
    "TRUNCATE": run("TRUNCATE t"),
    "TRUNCATE of a partition": run("TRUNCATE high", table=PARTITIONED),
    "DROP TABLE": run("DROP TABLE t"),
    "DROP TABLE of a partition": run("DROP TABLE high", table=PARTITIONED),
    "DROP SCHEMA … CASCADE": run("DROP SCHEMA public CASCADE"),
    "ALTER SCHEMA … RENAME TO": run("ALTER SCHEMA public RENAME TO private"),
    "CREATE TABLE … PARTITION OF": run(
        "CREATE TABLE more PARTITION OF t FOR VALUES FROM (200) TO (300)", table=PARTITIONED
    ),
    "CREATE TABLE … INHERITS": run("CREATE TABLE child () INHERITS (t)", "INSERT INTO child VALUES (9, 9)"),
    "CREATE VIEW": run("CREATE VIEW w AS SELECT * FROM t"),
    "VACUUM FULL": run("VACUUM FULL t"),
    "CLUSTER": run("CLUSTER t USING t_pkey"),
    "REINDEX TABLE": run("REINDEX TABLE t", "REINDEX TABLE CONCURRENTLY t"),
    "ANALYZE": run("ANALYZE t"),
    "CREATE INDEX": run("CREATE INDEX ON t (v)", "CREATE INDEX CONCURRENTLY ON t (name)"),
    "CREATE UNIQUE INDEX": run("CREATE UNIQUE INDEX ON t (v)"),
    "ALTER INDEX": run("ALTER INDEX t_pkey RENAME TO t_key", "ALTER INDEX t_key SET (fillfactor = 50)"),
    "DROP INDEX": run("DROP INDEX by_v", before=UNIQUE),
    "CREATE STATISTICS": run("CREATE STATISTICS s ON v, name FROM t"),
    "CREATE TRIGGER": run(*TRIGGER),
    "CREATE RULE": run(*RULE),
    "CREATE POLICY": run("CREATE POLICY p ON t USING (v > 1)"),
    "COMMENT ON": run("COMMENT ON TABLE t IS 'a table'", "COMMENT ON COLUMN t.v IS 'a column'"),
    "GRANT": run("GRANT SELECT ON t TO other", before=(ROLE,)),
    "ALTER TYPE … ADD VALUE": run("ALTER TYPE mood ADD VALUE 'happy' BEFORE 'ok'", before=ENUM),
    "ALTER TYPE … RENAME TO": run("ALTER TYPE mood RENAME TO temper", before=ENUM),
    "ALTER TYPE … SET SCHEMA": run("ALTER TYPE mood SET SCHEMA away", before=("CREATE SCHEMA away", *ENUM)),
    "ALTER TYPE … OWNER TO": run("ALTER TYPE mood OWNER TO other", before=(ROLE, *ENUM)),
    "ALTER TYPE … RENAME VALUE": run("ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'", before=ENUM),
    "ALTER TYPE … ADD ATTRIBUTE": run("ALTER TYPE size ADD ATTRIBUTE d int", before=COMPOSITE),
    "ALTER TYPE … RENAME ATTRIBUTE to the name that another one had": run(
        "BEGIN; ALTER TYPE size RENAME ATTRIBUTE w TO x; ALTER TYPE size RENAME ATTRIBUTE h TO w;"
        " ALTER TYPE size RENAME ATTRIBUTE x TO h; COMMIT",
        before=COMPOSITE,
    ),
    "ALTER TYPE … RENAME ATTRIBUTE": run("ALTER TYPE size RENAME ATTRIBUTE w TO x", before=COMPOSITE),
    "ALTER TYPE … DROP ATTRIBUTE": run("ALTER TYPE size DROP ATTRIBUTE w", before=COMPOSITE),
    "ALTER TYPE … ALTER ATTRIBUTE … TYPE": run("ALTER TYPE size ALTER ATTRIBUTE w TYPE bigint", before=COMPOSITE),
    "ALTER DOMAIN … SET DEFAULT": run("ALTER DOMAIN percent SET DEFAULT 7", before=DOMAIN),
    "ALTER DOMAIN … SET NOT NULL": run("ALTER DOMAIN percent SET NOT NULL", before=DOMAIN),
    "ALTER DOMAIN … ADD": run("ALTER DOMAIN percent ADD CHECK (VALUE <= 100)", before=DOMAIN),
    "ALTER DOMAIN … DROP CONSTRAINT": run("ALTER DOMAIN percent DROP CONSTRAINT low", before=DOMAIN),
    "ALTER DOMAIN … RENAME TO": run("ALTER DOMAIN percent RENAME TO share", before=DOMAIN),
    "DROP TYPE … CASCADE": run("DROP TYPE mood CASCADE", before=ENUM),
    "DROP DOMAIN … CASCADE": run("DROP DOMAIN percent CASCADE", before=DOMAIN),
    "ALTER SEQUENCE of an identity column": run("ALTER SEQUENCE t_n_seq RESTART WITH 100", before=IDENTITY),
    "ALTER PUBLICATION … DROP TABLE": run("ALTER PUBLICATION {publication} DROP TABLE t"),
    "DROP PUBLICATION": run("DROP PUBLICATION {publication}"),
}  # fmt: skip


def effects() -> Iterator[tuple[str, str, str, str]]:
    """Yield each form of the page with its heading, and its effect under `default` and under `column_changes`."""
    for heading in HEADINGS:
        section = re.split(r"\n##", PAGE.read_text().partition(f"\n{heading}\n")[2])[0]
        for line in re.findall(r"^\| (`.*) \|$", section, re.MULTILINE):
            forms, default, column_changes = line.split(" | ")
            if default.strip("`") != "default":
                assert EFFECTS.issuperset((default, column_changes)), line
                for form in forms.split("; "):
                    yield form.replace("`", ""), heading.strip("# "), default, column_changes


def trials() -> Iterator[Any]:
    """Yield forms that have the same effects, and can have their tables in one database, and these effects."""
    together: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name, heading, default, column_changes in effects():
        form = FORMS.get(name, run())
        alone = {default, column_changes} - {"none", "rows again"} or OF_DATABASE.search(" ".join(form.statements))
        together[name if alone else f"{heading} {default} {column_changes}", default, column_changes].append(name)
    for (title, *effect), names in together.items():
        yield pytest.param(names, *effect, id=title)


def test_every_form_of_the_page_is_tried() -> None:
    on_page = [form for form, *_ in effects()]
    assert sorted(on_page) == sorted(FORMS)


@dataclass(frozen=True)
class Followed:
    """The table `t` of a form in a schema of its own, and its oid, which stays."""

    form: str
    schema: str
    oid: int

    @property
    def name(self) -> str:
        """Its first name, which changefeeds keep."""
        return f"{self.schema}.t"


@pytest.mark.slow
@pytest.mark.parametrize(("forms", "default", "column_changes"), list(trials()))
def test_the_statements_have_the_effect_that_the_page_says(
    database: str, sql: Sql, forms: list[str], default: str, column_changes: str
) -> None:
    rules = {
        "default": (SchemaChangeRules(), default),
        "stop": (SchemaChangeRules(events="column_changes", policy="stop"), column_changes),
    }
    if column_changes == "rows again":
        rules["stop"] = (rules["stop"][0], "ends")
        rules["column_changes"] = (SchemaChangeRules(events="column_changes"), "rows again")
        rules["nobackfill"] = (SchemaChangeRules(events="column_changes", policy="nobackfill"), "none")
    ends = [policy for policy, (_, effect) in rules.items() if effect == "ends"]
    tables = [create(sql, form, "public" if len(forms) == 1 else f"form_{number}") for number, form in enumerate(forms)]

    @contextmanager
    def following(policies: Iterable[str], tables: Sequence[Followed]) -> Iterator[dict[str, Feed]]:
        names = [table.name for table in tables]
        with ExitStack() as stack:
            feeds = {
                policy: stack.enter_context(
                    feed_of(database, *names, changefeed=policy, schema_changes=rules[policy][0])
                )
                for policy in policies
            }
            for feed in feeds.values():
                feed.start()
                feed.catch_up()
            yield feeds

    with ExitStack() as stack:
        if "elsewhere" in FORMS[forms[0]].statements[0]:
            stack.enter_context(another_tablespace(sql))
        feeds = stack.enter_context(following(rules.keys() - ends, tables))
        for table in tables:
            with following(ends, [table]) as ending:
                change(sql, table, {**feeds, **ending}, refused=default == "refused")
                for feed in ending.values():
                    with pytest.raises(TerminalRangefeedError, match=r"^(table|publication) \S+.{10,}\. [A-Z]"):
                        feed.steps_until(lambda: False)
        if default == "waits":
            for feed in feeds.values():
                marks = dict(feed.resolved)
                sql.execute("INSERT INTO t SELECT * FROM t LIMIT 1")
                assert feed.step()
                assert feed.resolved == marks
            return
        for policy, feed in feeds.items():
            require(rules[policy][1], feed, sql, tables)
        for table in tables if feeds else ():
            row: Any = sql.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum = 1", [table.oid]
            ).fetchone()
            sql.execute(f"UPDATE {name_of(sql, table)} SET {row[0]} = {row[0]} WHERE {row[0]} = 1")
        for feed in feeds.values():
            feed.catch_up()
            for table in tables:
                ((key, after),) = [found for found in feed.rows(table.name).items() if found[0][0] == 1]
                assert after == present(sql, table, feed)[key], table.form


def create(sql: Sql, form: str, schema: str) -> Followed:
    """Create the table of *form* in *schema*, and what has to be there before its statements."""
    sql.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    sql.execute(f"SET search_path = {schema}")
    for statement in (*FORMS[form].table, *FORMS[form].before):
        sql.execute(statement)
    row: Any = sql.execute("SELECT 't'::regclass::oid::int").fetchone()
    return Followed(form, schema, row[0])


def change(sql: Sql, table: Followed, feeds: Mapping[str, Feed], *, refused: bool) -> None:
    """Execute the statements of the table's form. Only those that must be *refused* are."""
    sql.execute(f"SET search_path = {table.schema}")
    publications = [f"cdc_{policy}_{feed.context.feed_id}" for policy, feed in feeds.items()]
    for statement in FORMS[table.form].statements:
        try:
            for text in dict.fromkeys(statement.format(publication=name) for name in publications):
                sql.execute(text)
        except psycopg.Error:
            assert refused, table.form


def require(effect: str, feed: Feed, sql: Sql, tables: Sequence[Followed]) -> None:
    """Fail unless the statements before had *effect* on the changefeed, which continues."""
    known = len(feed.changes)
    feed.catch_up()
    for table in tables:
        emitted = {change.op for change in feed.changes[known:] if change.table == table.name}
        wanted = {"rows again": {Op.SCAN}, "scanned": {Op.SCAN}, "deleted": {Op.DELETE}}.get(effect, set())
        assert emitted == wanted, table.form
        rows = present(sql, table, feed)
        assert feed.rows(table.name).keys() == rows.keys(), table.form
        if effect in ("rows again", "scanned"):
            assert feed.rows(table.name) == rows, table.form


def present(sql: Sql, table: Followed, feed: Feed) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the rows of the table, in the form in which they arrive, by the key that *feed* has."""
    columns = sql.execute(
        "SELECT quote_ident(attname), typtype, typname = 'numeric' FROM pg_attribute "
        "JOIN pg_type t ON t.oid = atttypid WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped "
        "AND attgenerated <> 'v' ORDER BY attnum",
        [table.oid],
    ).fetchall()
    shown = [
        f"to_jsonb({name})::text AS {name}" if kind == "c" else f"{name}::text" if kind == "e" or text else name
        for name, kind, text in columns
    ]
    place = name_of(sql, table)
    partitioned = bool(sql.execute("SELECT 1 FROM pg_partitioned_table WHERE partrelid = %s", [table.oid]).fetchone())
    query = f"SELECT * FROM {place}" if partitioned else f"SELECT {', '.join(shown)} FROM ONLY {place}"
    return table_of(sql, query, key=len(next(iter(feed.rows(table.name)), (1,))))


def name_of(sql: Sql, table: Followed) -> str:
    row: Any = sql.execute("SELECT %s::oid::regclass::text", [table.oid]).fetchone()
    return str(row[0])
