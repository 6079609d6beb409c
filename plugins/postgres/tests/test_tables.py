"""Tables with schema changes, partitions, large values and unusual names."""

from __future__ import annotations

import pytest
from cdc_testing.feeding import Feed, caught_up, started
from cdc_testing.postgres import Sql, table_of

from cdc_core import Op, SchemaChangeRules, TerminalRangefeedError

NOBACKFILL = SchemaChangeRules(policy="nobackfill")


def versions(feed: Feed) -> list[tuple[int, tuple[str, ...]]]:
    """Return the version and the columns of each change that has a row."""
    return [(change.version, tuple(change.after)) for change in feed.changes if change.after is not None]


def test_an_added_and_a_dropped_column_take_effect_with_the_first_row_that_has_them(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, a text)")
    with started(database, "t", schema_changes=NOBACKFILL) as feed:
        sql.execute("INSERT INTO t VALUES (1, 'a')")
        sql.execute("ALTER TABLE t ADD COLUMN b int DEFAULT 7")
        sql.execute("INSERT INTO t VALUES (2, 'a')")
        sql.execute("ALTER TABLE t DROP COLUMN a")
        sql.execute("INSERT INTO t VALUES (3)")
        feed.catch_up()
        sql.execute("INSERT INTO t VALUES (4)")
        feed.catch_up()
        assert versions(feed) == [(1, ("id", "a")), (2, ("id", "a", "b")), (3, ("id", "b")), (3, ("id", "b"))]
        (schema,) = feed.rangefeed.schemas()
        assert feed.token["tables"]["public.t"]["version"] == 3
        assert [column.name for column in schema.columns] == ["id", "b"]


def test_version_numbers_continue_after_a_restart(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with started(database, "t", schema_changes=NOBACKFILL) as feed:
        sql.execute("ALTER TABLE t ADD COLUMN b int")
        sql.execute("INSERT INTO t VALUES (1)")
        feed.catch_up()
        feed.close()
        sql.execute("ALTER TABLE t ADD COLUMN c int")
        sql.execute("INSERT INTO t VALUES (2)")
        sql.execute("ALTER TABLE t DROP COLUMN c")
        sql.execute("INSERT INTO t VALUES (3)")
        feed.restart()
        feed.catch_up()
        assert versions(feed) == [(2, ("id", "b")), (3, ("id", "b", "c")), (4, ("id", "b"))]
        (schema,) = feed.rangefeed.schemas()
        assert schema.version in (2, 4)


def test_a_column_dropped_between_planning_and_reading_is_retried(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, a int)")
    sql.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 100) g")
    with started(database, "t") as feed:
        slices = feed.plan_scan()
        sql.execute("ALTER TABLE t DROP COLUMN a")
        with pytest.raises(Exception, match=r"table public\.t or a column of it was dropped during its scan"):
            list(feed.reader.read(slices[0]))
        feed.restart()
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id FROM t")


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("DROP TABLE t", r"table public\.t was dropped\. To continue without it, remove it from 'tables'"),
        ("ALTER TABLE t REPLICA IDENTITY NOTHING", r"has REPLICA IDENTITY NOTHING.* REPLICA IDENTITY DEFAULT;"),
    ],
)
def test_a_change_that_cannot_be_followed_is_terminal(database: str, sql: Sql, statement: str, text: str) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, a int NOT NULL)")
    with caught_up(database, "t") as feed:
        sql.execute(statement)
        with pytest.raises(TerminalRangefeedError, match=text):
            feed.steps_until(lambda: False)


def test_losing_replica_identity_full_ends_a_changefeed_with_diff(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, a text)")
    sql.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    with caught_up(database, "t", diff=True) as feed:
        sql.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")
        with pytest.raises(TerminalRangefeedError, match=r"Run ALTER TABLE .* REPLICA IDENTITY FULL;"):
            feed.steps_until(lambda: False)


def test_an_unchanged_large_value_is_looked_up_by_key(database: str, sql: Sql) -> None:
    sql.execute('CREATE TABLE t (k char(8), "cdc ord" date, big text, n int, PRIMARY KEY (k, "cdc ord"))')
    sql.execute("ALTER TABLE t ALTER COLUMN big SET STORAGE EXTERNAL")
    sql.execute("INSERT INTO t SELECT 'k' || g, '2020-01-01', repeat('x', 5000), 0 FROM generate_series(1, 2500) g")
    with started(database, "t", initial_scan=False, options={"unchanged_toast": "lookup"}) as feed:
        sql.execute("UPDATE t SET n = 1")
        feed.catch_up()
        assert len(feed.changes) == 2500
        assert {change.after["big"] for change in feed.changes if change.after} == {"x" * 5000}


def test_replica_identity_using_index_gives_the_key(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL UNIQUE, n int)")
    sql.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX t_code_key")
    sql.execute("INSERT INTO t VALUES (1, 'a', 1)")
    with started(database, "t") as feed:
        feed.scan()
        sql.execute("DELETE FROM t")
        feed.catch_up()
        assert [(change.op, change.key) for change in feed.changes] == [(Op.SCAN, ("a",)), (Op.DELETE, ("a",))]


def test_unusual_names_of_tables_and_columns(database: str, sql: Sql) -> None:
    sql.execute('CREATE SCHEMA "My ""Schema""."')
    sql.execute('CREATE TABLE "My ""Schema""."."Tä ble" ("I d" int PRIMARY KEY, "select" text)')
    sql.execute("""INSERT INTO "My ""Schema""."."Tä ble" VALUES (1, 'a')""")
    with started(database, '"My ""Schema""."."Tä ble"') as feed:
        feed.scan()
        sql.execute("""UPDATE "My ""Schema""."."Tä ble" SET "select" = 'b'""")
        feed.catch_up()
        assert [change.after for change in feed.changes] == [{"I d": 1, "select": "a"}, {"I d": 1, "select": "b"}]


@pytest.mark.parametrize(
    "listed",
    [('"a.b".c', 'a."b.c"', '"x.y"', "ŻÓŁW", '"żółw"'), ('"a.b".*', "a.*", "public.*")],
    ids=["names", "patterns"],
)
def test_tables_whose_names_have_dots_are_told_apart(database: str, sql: Sql, listed: tuple[str, ...]) -> None:
    names = {
        '"a.b".c': '"a.b".c',
        "a.b.c": 'a."b.c"',
        "public.x.y": '"x.y"',
        "public.ŻÓŁw": "ŻÓŁW",
        "public.żółw": "żółw",
    }
    sql.execute('CREATE SCHEMA "a.b"; CREATE SCHEMA a')
    for number, name in enumerate(names.values()):
        sql.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        sql.execute(f"INSERT INTO {name} VALUES (1, {number})")

    def agree() -> None:
        feed.catch_up()
        assert {name: feed.rows(name) for name in names} == {
            name: table_of(sql, f"TABLE {text}") for name, text in names.items()
        }

    with started(database, *listed) as feed:
        assert {schema.name.qualified for schema in feed.rangefeed.schemas()} == names.keys()
        feed.scan()
        agree()
        for number, name in enumerate(names.values()):
            sql.execute(f"UPDATE {name} SET n = n + 10")
            sql.execute(f"INSERT INTO {name} VALUES (2, {number})")
        agree()
        sql.execute('ALTER TABLE a."b.c" RENAME TO moved; ALTER TABLE "a.b".c ADD COLUMN v int DEFAULT 7')
        names["a.b.c"] = "a.moved"
        sql.execute('INSERT INTO a.moved VALUES (3); INSERT INTO "a.b".c VALUES (3)')
        agree()
        feed.restart()
        sql.execute('UPDATE a.moved SET n = 5; DELETE FROM "a.b".c WHERE id = 1')
        agree()


def test_a_child_table_by_inheritance_is_not_part_of_its_parent(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    sql.execute("CREATE TABLE child (extra int) INHERITS (t)")
    sql.execute("INSERT INTO t VALUES (1)")
    sql.execute("INSERT INTO child VALUES (2, 2)")
    with started(database, "t") as feed:
        feed.scan()
        sql.execute("INSERT INTO child VALUES (3, 3)")
        sql.execute("INSERT INTO t VALUES (4)")
        feed.catch_up()
        assert sorted(feed.rows("public.t")) == [(1,), (4,)]
