"""Tables and partitions that were unlogged between two looks at the catalog: the log lacks changes, so it ends."""

from __future__ import annotations

import pytest
from cdc_testing.feeding import caught_up, started
from cdc_testing.postgres import Sql, table_of

from cdc_core import TerminalRangefeedError

KEEP = {"truncate": "keep"}
ALL = {"publication_name": "everything"}
UNLOGGED = ("ALTER TABLE {0} SET UNLOGGED", "UPDATE {0} SET v = v + 1", "DELETE FROM {0} WHERE id = 7")
LOGGED = "ALTER TABLE {0} SET LOGGED"
REWROTE = r"^table public\.{0}: ALTER TABLE rewrote it, .* To read all tables again, "


@pytest.fixture(autouse=True)
def tables(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    sql.execute("CREATE TABLE p (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE p0 PARTITION OF p FOR VALUES FROM (0) TO (100)")
    sql.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (100) TO (200)")
    sql.execute("CREATE PUBLICATION everything FOR ALL TABLES WITH (publish_via_partition_root = true)")
    for table in ("t", "p"):
        sql.execute(f"INSERT INTO {table} SELECT g, g FROM generate_series(1, 150) g")


@pytest.mark.parametrize(
    ("table", "options"),
    [
        pytest.param("p0", {}, id="own"),
        pytest.param("p0", KEEP, id="keep", marks=pytest.mark.slow),
        pytest.param("p0", ALL, id="all", marks=pytest.mark.slow),
        pytest.param("t", ALL, id="plain"),
    ],
)
def test_what_was_unlogged_for_a_while_ends_the_changefeed_and_every_later_start(
    table: str, options: dict[str, str], database: str, sql: Sql
) -> None:
    with caught_up(database, table[0], options=options) as feed:
        for statement in (*UNLOGGED, LOGGED):
            sql.execute(statement.format(table))
        sql.execute(f"GRANT SELECT ON {table} TO PUBLIC; UPDATE {table} SET v = 0 WHERE id < 50; ANALYZE {table}")
        for _ in range(2):
            with pytest.raises(TerminalRangefeedError, match=REWROTE.format(table)):
                feed.catch_up()
            feed.restart()


def test_a_partition_that_ended_it_as_unlogged_and_is_logged_again_ends_it_again(database: str, sql: Sql) -> None:
    with caught_up(database, "p") as feed:
        for statement in UNLOGGED:
            sql.execute(statement.format("p1"))
        with pytest.raises(TerminalRangefeedError, match="is unlogged"):
            feed.catch_up()
        sql.execute(LOGGED.format("p1"))
        feed.restart()
        with pytest.raises(TerminalRangefeedError, match=REWROTE.format("p1")):
            feed.catch_up()


def test_a_table_that_cannot_be_unlogged_may_have_a_new_file_with_changes_in_it(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed:
        with sql.transaction():
            sql.execute("UPDATE t SET v = 5 WHERE id = 1; CLUSTER t USING t_pkey; INSERT INTO t VALUES (200, 0)")
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT * FROM t")


@pytest.mark.parametrize("table", ["p", "t"])
def test_what_gives_a_table_a_new_file_otherwise_does_not_end_it(table: str, database: str, sql: Sql) -> None:
    leaf = "p0" if table == "p" else "t"
    with started(database, table, options=ALL | KEEP) as feed:
        for statement in (
            "VACUUM FULL {0}",
            "CLUSTER {0} USING {0}_pkey",
            "VACUUM FULL {0}; BEGIN; GRANT SELECT ON {0} TO PUBLIC; INSERT INTO {0} VALUES (0, 0); COMMIT",
            "BEGIN; REINDEX TABLE {0}; UPDATE {0} SET v = 5; COMMIT",
            "BEGIN; DELETE FROM {0}; INSERT INTO {0} SELECT g, g FROM generate_series(1, 90) g; COMMIT",
            "VACUUM FULL {0}",
            "BEGIN; TRUNCATE {0}; INSERT INTO {0} SELECT g, -g FROM generate_series(0, 99) g; COMMIT; ANALYZE {0}",
            f"ALTER TABLE {table} ADD COLUMN w int DEFAULT (random() * 9)::int; ANALYZE {table}",
            f"ALTER TABLE {table} ADD COLUMN x int DEFAULT random()::int; ALTER TABLE {table} DROP x; ANALYZE {table}",
        ):
            for each in statement.format(leaf).split("; "):
                sql.execute(each)
            sql.execute(f"UPDATE {leaf} SET v = v - 1 WHERE id < 3")
            feed.catch_up()
            feed.restart()
        feed.catch_up()
        rows = {key: row for key, row in feed.rows(f"public.{table}").items() if key < (100,)}
        assert rows == table_of(sql, f"SELECT * FROM {table} WHERE id < 100")
