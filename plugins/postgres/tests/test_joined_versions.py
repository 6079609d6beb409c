"""A transaction that alters a table between its rows is one transaction: of each key its last version is a row."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres.types import PgColumn
from cdc_testing.decoding import ID, PLAIN, RELATION, T, V, decoder_of, rows_of, transaction, version_of
from cdc_testing.feeding import Change, Feed, caught_up, feed_of, started
from cdc_testing.pgmessages import UNCHANGED, delete, insert, log, relation, update
from cdc_testing.postgres import Sql, table_of

from cdc_core import Op, SchemaChangeRules, Timestamp

NOBACKFILL = SchemaChangeRules(policy="nobackfill")
Row = dict[str, Any]


class Consumer:
    """Keeps the newest row of each key, and ignores a row whose `updated` is not greater."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], Row] = {}
        self._newest: dict[tuple[Any, ...], Timestamp] = {}

    def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.key in self._newest and change.updated <= self._newest[change.key]:
                continue
            self._newest[change.key] = change.updated
            before = self.rows.pop(change.key, {})
            if change.after is not None:
                self.rows[change.key] = {name: before.get(name) for name in change.unavailable} | change.after


def test_a_consumer_has_the_rows_of_the_table_and_before_is_a_committed_row(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    sql.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    with caught_up(database, "t", diff=True) as feed:
        known = len(feed.changes)
        with sql.transaction():
            sql.execute("UPDATE t SET v = 'first' WHERE id = 1")
            sql.execute("INSERT INTO t VALUES (4, 'd')")
            sql.execute("UPDATE t SET v = 'only' WHERE id = 3")
            sql.execute("ALTER TABLE t ADD COLUMN c int")
            sql.execute("UPDATE t SET v = 'second' WHERE id = 1")
            sql.execute("DELETE FROM t WHERE id IN (2, 4)")
        feed.catch_up()
        changes = feed.changes[known:]
        assert len({change.updated for change in changes}) == 1
        assert sorted((change.key[0], change.op, change.after, change.before) for change in changes) == [
            (1, Op.UPDATE, {"id": 1, "v": "second", "c": None}, {"id": 1, "v": "a", "c": None}),
            (2, Op.DELETE, None, {"id": 2, "v": "b", "c": None}),
            (3, Op.UPDATE, {"id": 3, "v": "only"}, {"id": 3, "v": "c"}),
            (4, Op.DELETE, None, None),
        ]
        consumer = Consumer()
        consumer.apply(feed.changes)
        assert {key: row["v"] for key, row in consumer.rows.items()} == {(1,): "second", (3,): "only"}


@pytest.mark.parametrize(
    ("change", "key"),
    [("ALTER COLUMN id TYPE bigint", "id"), ("RENAME COLUMN id TO k", "k")],
    ids=["of another type", "renamed"],
)
def test_no_row_that_never_existed_remains_when_the_key_changes(database: str, sql: Sql, change: str, key: str) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    sql.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    sql.execute("INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)")
    with started(database, "t", diff=True) as feed:
        with sql.transaction():  # before the initial scan
            sql.execute("UPDATE t SET v = v + 1 WHERE id < 3")
            sql.execute("INSERT INTO t VALUES (4, 40)")
            sql.execute(
                f"ALTER TABLE t {change}, ALTER COLUMN v TYPE text" if key == "id" else f"ALTER TABLE t {change}"
            )
            sql.execute(f"UPDATE t SET v = '12' WHERE {key} = 1")
            sql.execute(f"DELETE FROM t WHERE {key} IN (2, 4)")
        feed.catch_up()
        consumer = Consumer()
        consumer.apply(feed.changes)
        assert consumer.rows == table_of(sql, "SELECT * FROM t")
        if key == "id":
            assert [change.before for change in feed.changes if change.op is Op.UPDATE] == [{"id": 1, "v": "10"}]


WIDER = version_of(ID, V, PgColumn("n", 23), number=2)


def decoded(*versions: Any, changes: Sequence[Sequence[bytes]], **options: Any) -> list[tuple[Any, ...]]:
    """Return the rows of one transaction in which each of *versions* has its *changes*."""
    messages = [
        message
        for version, of_version in zip(versions, changes, strict=True)
        for message in (relation(T, version.columns), *of_version)
    ]
    return rows_of(decoder_of(versions={T: versions}, **options).decode(log(*transaction(*messages))))


def test_an_unchanged_value_comes_from_a_row_of_an_earlier_version() -> None:
    assert decoded(PLAIN, WIDER, changes=[[update(T, "1", "new")], [update(T, "1", UNCHANGED, "9")]]) == [
        ("UPDATE", 1, (1, "new", 9))
    ]


@pytest.mark.parametrize(
    ("later", "row"),
    [
        (version_of(ID, PgColumn("w", 25), number=2), (1, None)),
        (version_of(ID, PgColumn("w", 25), V, number=2), (1, "w", None)),
    ],
    ids=["renamed", "may be another column"],
)
def test_a_value_is_not_taken_from_a_column_that_may_be_another_one(later: Any, row: tuple[Any, ...]) -> None:
    values = [UNCHANGED] if len(row) == 2 else ["w", UNCHANGED]
    assert decoded(PLAIN, later, changes=[[update(T, "1", "new")], [update(T, "1", *values)]]) == [("UPDATE", 1, row)]


def test_a_large_value_that_may_be_of_another_column_is_looked_up(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, big text, n int)")
    sql.execute("ALTER TABLE t ALTER COLUMN big SET STORAGE EXTERNAL")
    sql.execute("INSERT INTO t VALUES (1, repeat('a', 5000), 0)")
    with caught_up(database, "t", initial_scan=False, schema_changes=NOBACKFILL) as feed:
        with sql.transaction():
            sql.execute("UPDATE t SET big = repeat('b', 5000)")
            sql.execute("ALTER TABLE t RENAME COLUMN big TO large")
            sql.execute("UPDATE t SET n = 1")
        feed.catch_up()
        assert [(change.after, change.unavailable) for change in feed.changes] == [
            ({"id": 1, "large": "b" * 5000, "n": 1}, ())
        ]


def test_a_table_that_is_altered_twice_and_back_has_one_row() -> None:
    changes = [
        [update(T, "1", "b", old=["1", "a"]), insert(T, "2", "x")],
        [update(T, "1", "c", "1", old=["1", "b", None])],
        [update(T, "1", "d", old=["1", "c"]), delete(T, old=["2", "x"])],
    ]
    back = version_of(ID, V, number=3)
    assert decoded(PLAIN, WIDER, back, changes=changes, diff=True) == [
        ("UPDATE", 1, (1, "d"), (1, "a")),
        ("DELETE", 2, None, None),
    ]


@pytest.mark.parametrize(("type_", "key"), [(20, 1), (25, "1"), (1700, "1")], ids=["bigint", "text", "numeric"])
def test_a_key_of_another_type_is_the_same_key(type_: int, key: Any) -> None:
    later = version_of(PgColumn("id", type_), V, number=2)
    assert decoded(PLAIN, later, changes=[[insert(T, "1", "a")], [delete(T, old=["1", None])]]) == [
        ("DELETE", key, None)
    ]


def test_a_renamed_key_is_the_same_key_and_another_column_is_not() -> None:
    changes = [[insert(T, "1", "1")], [delete(T, old=["1", "1"])]]
    assert decoded(PLAIN, version_of(PgColumn("k", 23), V, number=2, key=["k"]), changes=changes) == [
        ("DELETE", 1, None)
    ]
    by_v = version_of(PgColumn("id", 23), PgColumn("v", 25, -1, True), number=2, key=["v"])
    assert decoded(PLAIN, by_v, changes=changes) == [("INSERT", 1, (1, "1")), ("DELETE", "1", None)]


def test_transactions_on_both_sides_keep_their_own_rows() -> None:
    decoder = decoder_of(versions={T: [PLAIN, WIDER]})
    messages = [
        *transaction(RELATION, insert(T, "1", "a")),
        *transaction(update(T, "1", "b"), relation(T, WIDER.columns), update(T, "1", "c", "1")),
        *transaction(update(T, "1", "d", "2")),
    ]
    assert rows_of(decoder.decode(log(*messages))) == [
        ("INSERT", 1, (1, "a")),
        ("UPDATE", 1, (1, "c", 1)),
        ("UPDATE", 1, (1, "d", 2)),
    ]


def test_rows_that_are_deleted_and_inserted_in_another_order_keep_their_own_before() -> None:
    changes = [delete(T, old=["1", "a"]), delete(T, old=["2", "b"]), insert(T, "2", "B"), insert(T, "1", "A")]
    assert decoded(PLAIN, changes=[changes], diff=True) == [
        ("UPDATE", 2, (2, "B"), (2, "b")),
        ("UPDATE", 1, (1, "A"), (1, "a")),
    ]


class Table:
    """A table whose columns id, v and big remain, and transactions that write and alter it at random."""

    def __init__(self, sql: Sql, *, identity: str, partitioned: bool, text: bool) -> None:
        self._sql, self._random, self._number = sql, random.Random(f"{identity} {partitioned}"), 0
        self._extra: list[str] = []
        sql.prepare_threshold = None  # its plans would be of other columns
        sql.execute(
            f"CREATE TABLE t (id int PRIMARY KEY, v int, big text{', a int[]' if text else ''})"
            f"{' PARTITION BY RANGE (id)' if partitioned else ''}"
        )
        leaves = ["t1", "t2"] if partitioned else ["t"]
        if partitioned:
            sql.execute("CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (MINVALUE) TO (3)")
            sql.execute("CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (3) TO (MAXVALUE)")
        for leaf in leaves:
            sql.execute(f"ALTER TABLE {leaf} ALTER COLUMN big SET STORAGE EXTERNAL")
        for table in {"t", *leaves}:
            sql.execute(f"ALTER TABLE {table} REPLICA IDENTITY {identity}")
        self.write(5)

    def rows(self) -> dict[tuple[Any, ...], Row]:
        return table_of(self._sql, "SELECT * FROM t")

    def transaction(self) -> None:
        """Run a transaction that writes and alters the table, parts of which may be rolled back."""
        with self._sql.transaction():
            for _ in range(self._random.randint(1, 4)):
                extra, undone = list(self._extra), self._random.random() < 0.2
                with self._sql.transaction():
                    self.write(self._random.randint(0, 4))
                    self._alter(rewrite=not undone)
                    self.write(self._random.randint(0, 4))
                    if undone:
                        self._extra = extra
                        raise psycopg.Rollback

    def write(self, count: int) -> None:
        """Run *count* statements. One that changes a key has the large value, which is unknown otherwise."""
        for _ in range(count):
            self._number += 1
            key, other, number = self._random.randint(1, 5), self._random.randint(1, 5), self._number
            extra = self._random.choice(self._extra) if self._extra else "v"
            statement = self._random.choice(
                [
                    f"INSERT INTO t (id, v, big) VALUES ({key}, {number}, repeat('{number},', 5000))"
                    " ON CONFLICT (id) DO UPDATE SET big = EXCLUDED.big",
                    f"UPDATE t SET v = {number} WHERE id = {key}",
                    f"UPDATE t SET {extra} = {number} WHERE id = {key}",
                    f"UPDATE t SET big = repeat('{number},', 5000) WHERE id = {key}",
                    f"DELETE FROM t WHERE id = {key}",
                    f"UPDATE t SET id = {other}, big = repeat('{number},', 5000)"
                    f" WHERE id = {key} AND NOT EXISTS (SELECT FROM t WHERE id = {other})",
                ]
            )
            self._sql.execute(statement)

    def _alter(self, *, rewrite: bool) -> None:
        """Alter the table. A rewrite must not be undone: the server itself could not decode the log."""
        self._number += 1
        name = f"c{self._number}"
        actions = ["add", "add", "default", "drop", "rename", "none"]
        action = self._random.choice([*actions, "type"] if rewrite else actions)
        if action in ("add", "default"):
            default = f"DEFAULT {self._number}" if action == "default" else ""
            self._sql.execute(f"ALTER TABLE t ADD COLUMN {name} int {default}")
            self._extra.append(name)
        elif action == "type":
            self._sql.execute(f"ALTER TABLE t ALTER COLUMN v TYPE {self._random.choice(['int', 'bigint'])}")
        elif action != "none" and self._extra:
            old = self._extra.pop(self._random.randrange(len(self._extra)))
            if action == "drop":
                self._sql.execute(f"ALTER TABLE t DROP COLUMN {old}")
            else:
                self._sql.execute(f"ALTER TABLE t RENAME COLUMN {old} TO {name}")
                self._extra.append(name)


def remaining(rows: Mapping[tuple[Any, ...], Row]) -> dict[tuple[Any, ...], Row]:
    return {key: {name: row[name] for name in ("id", "v", "big")} for key, row in rows.items()}


def assert_is_one_version_of_each_row(
    changes: Sequence[Change], before: Mapping[tuple[Any, ...], Row], *, diff: bool
) -> None:
    """Fail unless *changes* are those of one transaction, before which the table had the rows *before*."""
    assert len({change.key for change in changes}) == len(changes)
    assert len({change.updated for change in changes}) <= 1
    for change in changes:
        row = before.get(change.key)
        assert change.op in ((Op.UPDATE, Op.DELETE) if row is not None else (Op.INSERT, Op.DELETE))
        if diff:
            assert (change.before is None) == (row is None)
            image = change.before or {}
            assert row is None or all(image[name] == row[name] for name in image.keys() & row.keys())


def consume(feed: Feed, table: Table, *, transactions: int, whole: bool) -> None:
    consumer, known = Consumer(), 0
    feed.start()
    for number in range(transactions):
        before = table.rows()
        table.transaction()
        feed.catch_up()
        changes, known = feed.changes[known:], len(feed.changes)
        consumer.apply(changes)
        assert remaining(consumer.rows) == remaining(table.rows())
        if whole and number:  # the first one comes with the initial scan
            assert_is_one_version_of_each_row(changes, before, diff=feed.context.diff)


@pytest.mark.parametrize(
    ("identity", "partitioned", "text", "whole"),
    [
        ("DEFAULT", False, False, False),
        ("DEFAULT", True, True, True),
        ("FULL", False, True, False),
        ("FULL", True, False, True),
    ],
)
def test_a_consumer_arrives_at_the_table_after_every_transaction(
    database: str, sql: Sql, identity: str, *, partitioned: bool, text: bool, whole: bool
) -> None:
    table = Table(sql, identity=identity, partitioned=partitioned, text=text)
    diff, options = identity == "FULL", {"fetch_size": (2 << 20) if whole else (64 << 10)}
    with feed_of(database, "t", diff=diff, options=options, schema_changes=NOBACKFILL) as feed:
        consume(feed, table, transactions=15, whole=whole)
