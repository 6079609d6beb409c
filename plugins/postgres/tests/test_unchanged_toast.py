"""Updates that leave large values unchanged, on a real server: every version is delivered, and none is made up."""

from __future__ import annotations

import pytest
from cdc_testing.feeding import Change, caught_up, started
from cdc_testing.postgres import Sql, table_of
from cdc_testing.processes import resident_bytes

from cdc_core import Op, RetryableRangefeedError, RowBatch, SchemaChangeRules

LOOKUP = {"unchanged_toast": "lookup"}
BIG = "x" * 5000


@pytest.fixture(autouse=True)
def table(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, big text, n int)")
    sql.execute("ALTER TABLE t ALTER COLUMN big SET STORAGE EXTERNAL")
    sql.execute("INSERT INTO t SELECT g, repeat('x', 5000), 0 FROM generate_series(1, 3) g")


def shown(changes: list[Change]) -> list[tuple[object, ...]]:
    return [(change.op.name, change.key[0], change.after, change.unavailable) for change in changes]


@pytest.mark.parametrize("options", [{}, LOOKUP], ids=["unavailable", "lookup"])
def test_a_row_that_is_updated_and_deleted_in_one_step_is_delivered_twice(
    database: str, sql: Sql, options: dict[str, str]
) -> None:
    with caught_up(database, "t", initial_scan=False, options=options) as feed:
        sql.execute("UPDATE t SET n = 1 WHERE id = 1")
        sql.execute("DELETE FROM t WHERE id = 1")
        feed.catch_up()
        assert shown(feed.changes) == [("UPDATE", 1, {"id": 1, "n": 1}, ("big",)), ("DELETE", 1, None, ())]


def test_the_table_is_never_read_for_unchanged_values_by_default(database: str, sql: Sql) -> None:
    with caught_up(database, "t", initial_scan=False) as feed:
        sql.execute("UPDATE t SET n = 1")
        with sql.transaction():
            sql.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")  # nobody can read it
            feed.steps_until(lambda: len(feed.changes) == 3)
        assert {change.unavailable for change in feed.changes} == {("big",)}


def test_the_values_of_a_table_are_not_looked_up_while_only_another_one_is_scanned(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE u (id int PRIMARY KEY)")
    sql.execute("INSERT INTO u SELECT generate_series(1, 100)")
    with caught_up(database, "t", "u") as feed:
        known = len(feed.changes)
        sql.execute("ALTER TABLE u ADD COLUMN c int DEFAULT 7")
        sql.execute("UPDATE t SET n = 1 WHERE id = 1")
        sql.execute("UPDATE t SET big = 'later' WHERE id = 1")
        feed.catch_up()
        logged = [change for change in feed.changes[known:] if change.op is Op.UPDATE]
        assert [change.unavailable for change in logged] == [("big",), ()]
        assert sum(change.op is Op.SCAN for change in feed.changes[known:]) == 100


def test_no_value_is_unavailable_while_the_initial_scan_runs(database: str, sql: Sql) -> None:
    with started(database, "t") as feed:
        sql.execute("UPDATE t SET n = 1")  # in the log, before the first snapshot of the scan
        feed.scan()
        logged = [change for change in feed.changes if change.op is Op.UPDATE]
        assert [change.after for change in logged] == [{"id": id_, "big": BIG, "n": 1} for id_ in (1, 2, 3)]
        sql.execute("UPDATE t SET n = 2")
        feed.catch_up()
        assert [change.unavailable for change in feed.changes[-3:]] == [("big",)] * 3
        assert feed.rows("public.t") == table_of(sql, "SELECT id, big, n FROM t")


def test_a_value_in_an_earlier_row_of_the_step_is_used(database: str, sql: Sql) -> None:
    with caught_up(database, "t", initial_scan=False) as feed:
        sql.execute("INSERT INTO t VALUES (7, repeat('y', 5000), 0)")
        sql.execute("UPDATE t SET n = 1 WHERE id = 7")
        sql.execute("UPDATE t SET big = repeat('z', 5000) WHERE id = 7")
        sql.execute("UPDATE t SET n = 2 WHERE id = 7")
        feed.catch_up()
        known = [(0, "y"), (1, "y"), (1, "z"), (2, "z")]
        assert [change.after for change in feed.changes] == [
            {"id": 7, "big": letter * 5000, "n": n} for n, letter in known
        ]
        assert not any(change.unavailable for change in feed.changes)


def test_with_lookup_the_present_value_is_delivered(database: str, sql: Sql) -> None:
    with caught_up(database, "t", initial_scan=False, options=LOOKUP) as feed:
        sql.execute("UPDATE t SET n = 1 WHERE id = 1")
        sql.execute("UPDATE t SET big = repeat('y', 5000) WHERE id = 1")
        feed.catch_up()
        assert [change.after for change in feed.changes] == [{"id": 1, "big": "y" * 5000, "n": 1}] * 2


def test_the_wait_for_a_locked_table_in_a_lookup_ends_after_lock_timeout(database: str, sql: Sql) -> None:
    with caught_up(database, "t", initial_scan=False, options={**LOOKUP, "lock_timeout": 0.2}) as feed:
        sql.execute("UPDATE t SET n = 1 WHERE id = 1")
        with sql.transaction():
            sql.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(RetryableRangefeedError, match=r"looking up values of public\.t: .* lock timeout"):
                feed.steps_until(lambda: bool(feed.changes))
        feed.restart()
        feed.catch_up()
        assert [change.unavailable for change in feed.changes] == [()]


@pytest.mark.parametrize(
    "change", ["ALTER TABLE t DROP COLUMN big", "ALTER TABLE t ALTER COLUMN big TYPE bytea USING big::bytea"]
)
def test_with_lookup_a_column_that_is_gone_is_unavailable(database: str, sql: Sql, change: str) -> None:
    rules = SchemaChangeRules(policy="nobackfill")
    with caught_up(database, "t", initial_scan=False, options=LOOKUP, schema_changes=rules) as feed:
        sql.execute("UPDATE t SET n = 1 WHERE id = 1")
        sql.execute(change)
        feed.catch_up()
        assert shown(feed.changes) == [("UPDATE", 1, {"id": 1, "n": 1}, ("big",))]


def test_a_value_that_a_consumer_has_under_another_name_is_looked_up_until_the_table_is_read(
    database: str, sql: Sql
) -> None:
    sql.execute("ALTER TABLE t ADD other text; ALTER TABLE t ALTER other SET STORAGE EXTERNAL")
    sql.execute("UPDATE t SET other = big")
    with caught_up(database, "t") as feed:
        sql.execute("UPDATE t SET n = 1")
        sql.execute("ALTER TABLE t RENAME big TO large")
        sql.execute("UPDATE t SET n = 2")
        feed.catch_up()
        assert [change.unavailable for change in feed.changes[3:]] == [("big", "other")] * 3 + [("other",)] * 3
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n, large, other FROM t")
        sql.execute("ALTER TABLE t ADD c int DEFAULT 7")
        feed.catch_up()
        sql.execute("UPDATE t SET n = 3")
        feed.catch_up()
        assert [change.unavailable for change in feed.changes[-3:]] == [("large", "other")] * 3


def test_a_consumer_that_keeps_unavailable_values_arrives_at_the_table(database: str, sql: Sql) -> None:
    with started(database, "t") as feed:
        feed.scan()
        for number in range(60):
            key = number * 7 % 5
            letter = "abc"[number % 3]
            statement = (
                f"INSERT INTO t VALUES ({key}, repeat('{letter}', 5000), {number}) ON CONFLICT DO NOTHING",
                f"UPDATE t SET n = {number} WHERE id = {key}",
                f"UPDATE t SET big = repeat('{letter}', 5000) WHERE id = {key}",
                f"UPDATE t SET n = {number} WHERE id = {key}",
                f"DELETE FROM t WHERE id = {key}",
            )[number % 5 if number % 11 else 4]
            sql.execute(statement)
            if number % 4 == 0:
                feed.step()
        feed.catch_up()
        assert any(change.unavailable for change in feed.changes)
        assert feed.rows("public.t") == table_of(sql, "SELECT id, big, n FROM t")


def test_a_row_that_takes_the_key_of_another_one_never_keeps_the_value_of_that_one(database: str, sql: Sql) -> None:
    sql.execute("UPDATE t SET big = repeat(id::text, 5000)")
    with caught_up(database, "t", initial_scan=False) as feed:
        with sql.transaction():
            for key in (3, 2, 1):
                sql.execute(f"UPDATE t SET id = {key + 1} WHERE id = {key}")
        feed.catch_up()
        assert sorted(shown(feed.changes), key=lambda change: str(change[1])) == [
            ("DELETE", 1, None, ()),
            ("UPDATE", 2, {"id": 2, "big": "1" * 5000, "n": 0}, ()),
            ("UPDATE", 3, {"id": 3, "big": "2" * 5000, "n": 0}, ()),
            ("INSERT", 4, {"id": 4, "n": 0}, ("big",)),
        ]


@pytest.mark.parametrize("type_", ["text", "jsonb"])
def test_large_values_are_looked_up_in_bounded_memory(database: str, sql: Sql, usual_pace: None, type_: str) -> None:
    cast = "to_jsonb({})" if type_ == "jsonb" else "{}"
    sql.execute(f"ALTER TABLE t ALTER big TYPE {type_} USING {cast.format('big')}")
    value = cast.format("repeat('x', 8000000)")
    sql.execute(f"INSERT INTO t SELECT g, {value}, 0 FROM generate_series(11, 30) g")
    with caught_up(database, "t", initial_scan=False, options=LOOKUP, bytes_=1 << 40) as feed:
        # No step crosses the end of the log at the start, which may not have been durable then.
        sql.execute("UPDATE t SET n = 1 WHERE id = 1")
        feed.catch_up()
        sql.execute("UPDATE t SET n = 1 WHERE id > 10")
        before, greatest, rows = resident_bytes(), 0, 0
        for item in feed.reader.read(feed.slices()[0]):
            if isinstance(item, RowBatch):
                rows += len(item)
                assert item.nbytes < 9_000_000
                assert not item.has_unavailable
                greatest = max(greatest, resident_bytes())
        assert rows == 20
        assert greatest - before < 100 << 20, "of 160 MB"
