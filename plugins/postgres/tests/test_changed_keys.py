"""Changed keys: earlier rows keep their old key, later rows have the new one, and the table is read again with it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from cdc_rangefeed_postgres import planner
from cdc_testing.feeding import Feed, caught_up
from cdc_testing.postgres import Sql, writing

from cdc_core import ConfigError, Op, SchemaChangeRules, TerminalRangefeedError

STOP = SchemaChangeRules(policy="stop")
NOBACKFILL = SchemaChangeRules(policy="nobackfill")
ANOTHER_KEY = "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (other)"


BOTH_LAYOUTS_SLOWLY = pytest.mark.parametrize(
    "layout", ["plain", pytest.param("partitioned", marks=pytest.mark.slow)], indirect=True
)
"""For what takes long: other tests show in little time that partitions are no different."""


@pytest.fixture(params=["plain", "partitioned"])
def layout(request: pytest.FixtureRequest, sql: Sql) -> str:
    create(sql, partitioned=request.param == "partitioned")
    return str(request.param)


def create(sql: Sql, *, partitioned: bool = False, rows: int = 100) -> None:
    """Create t with 100 rows. `other` is unique too; partitions are by `region`, which every key of theirs has."""
    key = "id, region" if partitioned else "id"
    sql.execute(
        f"CREATE TABLE t (id int, other int NOT NULL, region text NOT NULL, v text, CONSTRAINT t_pkey "
        f"PRIMARY KEY ({key})) {'PARTITION BY LIST (region)' if partitioned else ''}"
    )
    if partitioned:
        sql.execute("CREATE TABLE t_eu PARTITION OF t FOR VALUES IN ('eu')")
        sql.execute("CREATE TABLE t_us PARTITION OF t FOR VALUES IN ('us')")
    sql.execute(
        "INSERT INTO t SELECT g, 1000 + g, CASE g %% 2 WHEN 0 THEN 'eu' ELSE 'us' END, 'v' "
        "FROM generate_series(1, %s) g",
        [rows],
    )


def assert_agrees(feed: Feed, sql: Sql, *key: str) -> None:
    """The consumer's rows, by the columns *key*, are those of the table."""
    feed.catch_up()
    rows = [row[0] for row in sql.execute("SELECT to_jsonb(t) FROM t")]
    assert feed.rows("public.t") == {tuple(row[name] for name in key): row for row in rows}


def scanned(feed: Feed) -> int:
    return sum(change.op is Op.SCAN for change in feed.changes)


def written(feed: Feed, *, since: int) -> list[tuple[Op, tuple[str, ...], tuple[Any, ...]]]:
    """Return op, key columns and key of the rows of the log after the first *since* changes."""
    return [
        (change.op, tuple(change.key_type.names), change.key) for change in feed.changes[since:] if not change.scanned
    ]


CHANGES = {
    "another": ([ANOTHER_KEY], ("other",)),
    "in two statements": (
        ["ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (other)"],
        ("other",),
    ),
    "wider": (["ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, region)"], ("id", "region")),
    "turned around": (
        [
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, other)",
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (other, id)",
        ],
        ("other", "id"),
    ),
    "by an index": (
        [
            "CREATE UNIQUE INDEX t_other ON t (other)",
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY USING INDEX t_other",
        ],
        ("other",),
    ),
    "of the identity": (
        ["CREATE UNIQUE INDEX t_other ON t (other)", "ALTER TABLE t REPLICA IDENTITY USING INDEX t_other"],
        ("other",),
    ),
    "renamed": (["ALTER TABLE t RENAME COLUMN id TO number"], ("number",)),
    "renamed twice": (
        ["ALTER TABLE t RENAME COLUMN id TO number", "ALTER TABLE t RENAME COLUMN number TO n"],
        ("n",),
    ),
    "of another type": (["ALTER TABLE t ALTER COLUMN id TYPE bigint"], ("id",)),
    "as text": (["ALTER TABLE t ALTER COLUMN id TYPE text USING 'number ' || id"], ("id",)),
    "dropped": (["ALTER TABLE t DROP COLUMN id", "ALTER TABLE t ADD PRIMARY KEY (other)"], ("other",)),
    "made anew": (["ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (id)"], ("id",)),
}
QUICK = ("another", "of the identity", "renamed", "of another type", "made anew")
"""One of each kind: another key, identity, name, type, and none in between."""


@pytest.mark.parametrize(
    ("change", "identity"),
    [
        *((name, "DEFAULT") for name in QUICK),
        *(pytest.param(name, "DEFAULT", marks=pytest.mark.slow) for name in CHANGES if name not in QUICK),
        pytest.param("another", "FULL", marks=pytest.mark.slow),
        ("dropped", "FULL"),
    ],
)
def test_the_rows_of_a_table_with_a_changed_key_follow_under_the_new_one(
    database: str, sql: Sql, change: str, identity: str
) -> None:
    create(sql)
    sql.execute(f"ALTER TABLE t REPLICA IDENTITY {identity}")
    statements, key = CHANGES[change]
    with caught_up(database, "t", bytes_=100_000) as feed:
        marks = dict(feed.resolved)
        sql.execute("UPDATE t SET v = 'before' WHERE other = 1001")
        sql.execute("DELETE FROM t WHERE other = 1002")
        for statement in statements:
            sql.execute(statement)
        sql.execute("UPDATE t SET v = 'after' WHERE other = 1003")
        sql.execute("DELETE FROM t WHERE other = 1004")
        sql.execute("UPDATE t SET other = 5000 WHERE other = 1005")
        while feed.resolved == marks:
            feed.step()
        assert_agrees(feed, sql, *key)
        assert scanned(feed) == 198
        sql.execute("UPDATE t SET v = 'later' WHERE other = 1007")
        sql.execute("DELETE FROM t WHERE other = 1008")
        assert_agrees(feed, sql, *key)
        assert scanned(feed) == 198


def test_earlier_rows_have_the_old_key_and_later_rows_the_new_one(database: str, sql: Sql, layout: str) -> None:
    old = ("id", "region") if layout == "partitioned" else ("id",)
    new = ("other", "region") if layout == "partitioned" else ("other",)
    with caught_up(database, "t") as feed:
        known = len(feed.changes)
        with sql.transaction():
            sql.execute("UPDATE t SET v = 'before' WHERE id = 1")
            sql.execute(f"ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY ({', '.join(new)})")
            sql.execute("UPDATE t SET v = 'after' WHERE id = 2")
        sql.execute("DELETE FROM t WHERE id = 3")
        assert_agrees(feed, sql, *new)
        assert written(feed, since=known) == [
            (Op.UPDATE, old, (1, "us")[: len(old)]),
            (Op.UPDATE, new, (1002, "eu")[: len(new)]),
            (Op.DELETE, new, (1003, "us")[: len(new)]),
        ]
        first = next(change for change in feed.changes[known:] if change.scanned)
        assert first.key_type.names == list(new)
        assert first.updated > max(change.updated for change in feed.changes[known:] if not change.scanned)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_key_that_a_table_had_for_a_while_is_found_in_the_log(
    database: str, sql: Sql, stopped: bool, layout: str
) -> None:
    """The catalog is as before, but a row that was deleted meanwhile has been deleted under the other key only."""
    old = ("id", "region") if layout == "partitioned" else ("id",)
    new = ("other", "region") if layout == "partitioned" else ("other",)
    if layout == "plain":
        sql.execute("CREATE UNIQUE INDEX t_other ON t (other)")
        there, back = ["ALTER TABLE t REPLICA IDENTITY USING INDEX t_other"], ["ALTER TABLE t REPLICA IDENTITY DEFAULT"]
    else:
        there = [f"ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY ({', '.join(new)})"]
        back = [f"ALTER TABLE t DROP CONSTRAINT t_pkey, ADD CONSTRAINT t_pkey PRIMARY KEY ({', '.join(old)})"]
    with caught_up(database, "t") as feed:
        if stopped:
            feed.close()
        for statement in there:
            sql.execute(statement)
        sql.execute("DELETE FROM t WHERE id = 1")
        sql.execute("UPDATE t SET v = 'meanwhile' WHERE id = 2")
        for statement in back:
            sql.execute(statement)
        sql.execute("UPDATE t SET v = 'again' WHERE id = 3")
        if stopped:
            feed.restart()
        assert_agrees(feed, sql, *old)
        assert {tuple(change.key_type.names) for change in feed.changes} == {old, new}
        assert scanned(feed) == 199


def test_the_policy_stop_ends_after_everything_before_is_delivered(database: str, sql: Sql) -> None:
    create(sql)
    with caught_up(database, "t", schema_changes=STOP) as feed:
        sql.execute("UPDATE t SET v = 'before' WHERE id = 1")
        sql.execute(ANOTHER_KEY)
        changed = feed.now()
        for _ in range(2):
            with pytest.raises(
                TerminalRangefeedError,
                match=r"table public\.t: the key changed from \(id\) to \(other\), after .* and schema_change_policy",
            ):
                feed.catch_up()
            assert [change.key for change in feed.changes if change.op is Op.UPDATE][:1] == [(1,)]
            assert max(feed.resolved.values()) < changed
            feed.restart()


def test_the_policy_stop_also_finds_a_key_that_a_table_had_for_a_while(database: str, sql: Sql) -> None:
    create(sql)
    sql.execute("CREATE UNIQUE INDEX t_other ON t (other)")
    with caught_up(database, "t", schema_changes=STOP) as feed:
        sql.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX t_other")
        sql.execute("DELETE FROM t WHERE id = 1")
        sql.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")
        for _ in range(2):
            with pytest.raises(TerminalRangefeedError, match=r"table public\.t: the key was \(other\) for a while"):
                feed.catch_up()
            feed.restart()


def test_the_policy_nobackfill_continues_with_the_new_key(database: str, sql: Sql, layout: str) -> None:
    new = ("other", "region") if layout == "partitioned" else ("other",)
    with caught_up(database, "t", schema_changes=NOBACKFILL) as feed:
        sql.execute("UPDATE t SET v = 'before' WHERE id = 1")
        sql.execute(f"ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY ({', '.join(new)})")
        sql.execute("UPDATE t SET v = 'after' WHERE id = 2")
        feed.catch_up()
        feed.restart()
        sql.execute("UPDATE t SET v = 'later' WHERE id = 3")
        feed.catch_up()
        assert scanned(feed) == 100
        assert [key[0] for _, _, key in written(feed, since=100)] == [1, 1002, 1003]


def test_without_a_key_rows_have_the_last_one_and_nothing_is_resolved(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create(sql)
    monkeypatch.setattr(planner, "_TELL_AFTER_S", 0.0)
    with caught_up(database, "t") as feed:
        marks = dict(feed.resolved)
        sql.execute("ALTER TABLE t DROP CONSTRAINT t_pkey")
        for number in range(3):
            sql.execute("INSERT INTO t VALUES (5, %s, 'eu')", [5000 + number])
            feed.step()
        assert feed.resolved == marks
        assert written(feed, since=100) == [(Op.INSERT, ("id",), (5,))] * 3
        told = "resolved timestamps are on hold: table public.t has no key: add a primary key"
        assert told in [record.getMessage() for record in caplog.records]
        with pytest.raises(
            ConfigError, match=r"table public\.t has no primary key, so its changes cannot be identified"
        ):
            feed.restart()
        sql.execute("ALTER TABLE t ADD PRIMARY KEY (other)")
        feed.restart()
        assert_agrees(feed, sql, "other")


def test_a_key_that_was_dropped_with_its_columns_ends_the_changefeed_until_there_is_another(
    database: str, sql: Sql
) -> None:
    create(sql)
    with caught_up(database, "t") as feed:
        sql.execute("ALTER TABLE t DROP COLUMN id")
        sql.execute("INSERT INTO t VALUES (5000, 'eu')")
        with pytest.raises(TerminalRangefeedError, match=r"table public\.t has no primary key.* Run ALTER TABLE"):
            feed.steps_until(lambda: False)
        sql.execute("ALTER TABLE t ADD PRIMARY KEY (other)")
        feed.restart()
        assert_agrees(feed, sql, "other")


def test_a_key_that_was_missing_for_a_while_is_read_again_although_it_is_the_same(database: str, sql: Sql) -> None:
    """With REPLICA IDENTITY FULL a row can be deleted whose key another row has too."""
    create(sql)
    sql.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    with caught_up(database, "t") as feed:
        sql.execute("ALTER TABLE t DROP CONSTRAINT t_pkey")
        sql.execute("INSERT INTO t VALUES (5, 5000, 'eu')")
        sql.execute("DELETE FROM t WHERE other = 5000")
        sql.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
        assert_agrees(feed, sql, "id")
        assert (5,) in feed.rows("public.t")


def test_an_identity_that_names_the_same_key_is_no_change(database: str, sql: Sql) -> None:
    create(sql)
    sql.execute("CREATE UNIQUE INDEX t_id ON t (id)")
    with caught_up(database, "t") as feed:
        for number, identity in enumerate(["FULL", "USING INDEX t_id", "FULL", "DEFAULT"]):
            sql.execute("DELETE FROM t WHERE id = %s", [number + 10])
            sql.execute(f"ALTER TABLE t REPLICA IDENTITY {identity}")
            sql.execute("UPDATE t SET v = %s WHERE id = 1", [identity])
            sql.execute("DELETE FROM t WHERE id = %s", [number + 20])
            if number % 2:
                feed.catch_up()
        sql.execute("REINDEX TABLE CONCURRENTLY t")
        sql.execute("UPDATE t SET v = 'reindexed' WHERE id = 2")
        assert_agrees(feed, sql, "id")
        assert scanned(feed) == 100


def test_several_changes_within_one_step(database: str, sql: Sql, layout: str) -> None:
    keys = [("other", "region"), ("id", "other", "region"), ("region", "id")]
    with caught_up(database, "t") as feed:
        for number, key in enumerate(keys):
            sql.execute(f"ALTER TABLE t DROP CONSTRAINT t_pkey, ADD CONSTRAINT t_pkey PRIMARY KEY ({', '.join(key)})")
            sql.execute("UPDATE t SET v = 'x' WHERE id = %s", [number + 1])
            sql.execute("DELETE FROM t WHERE id = %s", [number + 11])
        sql.execute("ALTER TABLE t RENAME COLUMN id TO number")
        sql.execute("UPDATE t SET v = 'y' WHERE number = 50")
        assert_agrees(feed, sql, "region", "number")
        assert len({change.version for change in feed.changes}) == 5
        assert scanned(feed) == 197


@BOTH_LAYOUTS_SLOWLY
def test_a_restart_at_each_step_loses_nothing(database: str, sql: Sql, layout: str) -> None:
    sql.execute("INSERT INTO t SELECT g, 1000 + g, 'eu', repeat('v', 100) FROM generate_series(101, 1000) g")
    keys = [("other", "region"), ("id", "region"), ("region", "other")]
    with caught_up(database, "t", bytes_=30_000) as feed:
        for number, key in enumerate(keys):
            marks = dict(feed.resolved)
            sql.execute("UPDATE t SET v = 'before' WHERE id %% 100 = %s", [number])
            sql.execute(f"ALTER TABLE t DROP CONSTRAINT t_pkey, ADD CONSTRAINT t_pkey PRIMARY KEY ({', '.join(key)})")
            sql.execute("DELETE FROM t WHERE id %% 100 = %s", [50 + number])
            for _ in range(3):
                feed.step()
                feed.restart()
            while feed.resolved == marks:
                feed.step()
            assert_agrees(feed, sql, *key)


def test_two_key_changes_with_a_look_in_between(database: str, sql: Sql) -> None:
    """The second change comes while the scan for the first one is running."""
    create(sql, rows=3000)
    with caught_up(database, "t", bytes_=50_000) as feed:
        known = scanned(feed)
        sql.execute(ANOTHER_KEY)
        feed.steps_until(lambda: scanned(feed) > known + 500)
        sql.execute("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, region)")
        sql.execute("DELETE FROM t WHERE id = 1")
        sql.execute("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (other)")
        sql.execute("DELETE FROM t WHERE id = 2")
        assert_agrees(feed, sql, "other")


@BOTH_LAYOUTS_SLOWLY
def test_at_every_mark_the_rows_under_the_present_key_are_those_of_one_moment(
    database: str, sql: Sql, layout: str
) -> None:
    """Keys change while transactions move amounts between rows and change columns of keys: no mark shows a part."""
    identity = "FULL" if layout == "partitioned" else "DEFAULT"
    sql.execute("INSERT INTO t SELECT g, 1000 + g, 'eu', 'v' FROM generate_series(101, 1000) g")
    sql.execute("ALTER TABLE t ADD COLUMN amount int NOT NULL DEFAULT 100")
    for name in ("t", "t_eu", "t_us") if layout == "partitioned" else ("t",):
        sql.execute(f"ALTER TABLE {name} REPLICA IDENTITY {identity}")
    region = ["region"] if layout == "partitioned" else []
    chance = random.Random(5)
    keys = [["other"], ["id"], ["id", "other"], ["other", "id"]]

    def write(connection: Sql, n: int) -> None:
        connection.execute(
            "UPDATE t SET amount = amount + CASE id WHEN %(a)s THEN 1 ELSE -1 END, other = other + 10000 "
            "WHERE id IN (%(a)s, %(b)s)",
            {"a": n * 7919 % 1000 + 1, "b": (n * 7919 + 500) % 1000 + 1},
        )

    marks = 0
    with caught_up(database, "t", options={"scan_round": 0.2}, bytes_=1_000_000) as feed:
        with writing(database, write, writers=1):
            for _ in range(6):
                for _ in range(chance.choice([1, 1, 2])):
                    key = ", ".join([*chance.choice(keys), *region])
                    sql.execute(f"ALTER TABLE t DROP CONSTRAINT t_pkey, ADD CONSTRAINT t_pkey PRIMARY KEY ({key})")
                seen, until = max(feed.resolved.values()), feed.now()
                while seen < until:
                    feed.step()
                    if max(feed.resolved.values()) > seen:
                        seen = max(feed.resolved.values())
                        marks += 1
                        rows = feed.rows("public.t").values()
                        assert sorted(row["id"] for row in rows) == list(range(1, 1001))
                        assert sum(row["amount"] for row in rows) == 100_000
                if chance.random() < 0.3:
                    feed.restart()
        assert_agrees(feed, sql, *key.split(", "))
    assert marks >= 6
