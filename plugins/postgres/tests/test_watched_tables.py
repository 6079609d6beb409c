"""The set of watched tables changes between two runs of a changefeed."""

from __future__ import annotations

import pytest
from cdc_rangefeed_postgres import starting, versions
from cdc_rangefeed_postgres.types import TableVersion
from cdc_testing.feeding import again, caught_up, feed_of, started
from cdc_testing.postgres import Sql, table_of

from cdc_core import ConfigError, Op, RetryableRangefeedError, TerminalRangefeedError


@pytest.fixture(autouse=True)
def tables(sql: Sql) -> None:
    for name in ("t", "u"):
        sql.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
        sql.execute(f"INSERT INTO {name} SELECT g, '{name}' FROM generate_series(1, 100) g")


def published(sql: Sql) -> set[str]:
    return {row[0] for row in sql.execute("SELECT tablename::text FROM pg_publication_tables")}


def test_an_added_table_is_scanned_while_the_others_continue(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed:
        sql.execute("UPDATE u SET v = 'before' WHERE id < 10")
        with again(feed, database, "t", "u") as wider:
            sql.execute("UPDATE t SET v = 'meanwhile' WHERE id = 1")
            sql.execute("DELETE FROM u WHERE id = 50")
            wider.catch_up()
            assert wider.rows("public.t") == table_of(sql, "SELECT * FROM t")
            assert wider.rows("public.u") == table_of(sql, "SELECT * FROM u")
            assert {change.table for change in wider.changes if change.op is Op.SCAN} == {"public.u"}


def test_nothing_is_resolved_before_an_added_table_is_scanned(database: str, sql: Sql) -> None:
    sql.execute("INSERT INTO u SELECT g, repeat('u', 500) FROM generate_series(101, 2000) g")
    with caught_up(database, "t") as feed, again(feed, database, "t", "u", bytes_=100_000) as wider:
        while wider.token["scan"] is not None:
            wider.step()
            assert not any(wider.resolved.values())
        wider.catch_up()
        assert wider.rows("public.u") == table_of(sql, "SELECT * FROM u")


def test_without_an_initial_scan_an_added_table_is_followed_from_then_on(database: str, sql: Sql) -> None:
    with (
        caught_up(database, "t", initial_scan=False) as feed,
        again(feed, database, "t", "u", initial_scan=False) as wider,
    ):
        sql.execute("INSERT INTO u VALUES (1000, 'new')")
        wider.catch_up()
        assert [(change.table, change.key) for change in wider.changes] == [("public.u", (1000,))]


def test_changes_of_a_removed_table_are_neither_emitted_nor_waited_for(database: str, sql: Sql) -> None:
    with caught_up(database, "t", "u") as feed:
        sql.execute("UPDATE u SET v = 'in the log, and not wanted any more'")
        sql.execute("UPDATE t SET v = 'wanted' WHERE id = 1")
        with again(feed, database, "t") as narrower:
            narrower.catch_up()
            assert {change.table for change in narrower.changes} == {"public.t"}
            assert narrower.rows("public.t") == table_of(sql, "SELECT * FROM t")
            assert published(sql) == {"t"}
            assert set(narrower.token["tables"]) == {"public.t"}


def test_a_table_that_can_no_longer_be_followed_can_be_left_and_read_anew(database: str, sql: Sql) -> None:
    with caught_up(database, "t", "u") as feed:
        sql.execute("TRUNCATE u")
        sql.execute("INSERT INTO u VALUES (1, 'after')")
        with pytest.raises(TerminalRangefeedError, match="was truncated"):
            feed.catch_up()
        with again(feed, database, "t") as narrower:
            narrower.catch_up()
            with again(narrower, database, "t", "u") as whole:
                whole.state["public.u"].clear()
                whole.catch_up()
                assert whole.rows("public.u") == {(1,): {"id": 1, "v": "after"}}


def test_a_dropped_table_can_be_removed(database: str, sql: Sql) -> None:
    with caught_up(database, "t", "u") as feed:
        sql.execute("DROP TABLE u")
        with again(feed, database, "t") as narrower:
            sql.execute("UPDATE t SET v = 'still here'")
            narrower.catch_up()
            assert narrower.rows("public.t") == table_of(sql, "SELECT * FROM t")


def test_a_renamed_table_is_read_anew_under_its_new_name(database: str, sql: Sql) -> None:
    with caught_up(database, "t", "u") as feed:
        sql.execute("ALTER TABLE u RENAME TO w")
        with again(feed, database, "t", "w") as renamed:
            sql.execute("UPDATE w SET v = 'new name' WHERE id = 1")
            renamed.catch_up()
            assert renamed.rows("public.w") == table_of(sql, "SELECT * FROM w")
            assert published(sql) == {"t", "w"}


def test_a_table_can_be_removed_in_the_middle_of_its_scan(database: str, sql: Sql) -> None:
    sql.execute("INSERT INTO u SELECT g, repeat('u', 500) FROM generate_series(101, 2000) g")
    with started(database, "u", "t", bytes_=100_000) as feed:
        feed.steps_until(lambda: len(feed.changes) > 500)
        with again(feed, database, "t") as narrower:
            narrower.catch_up()
            assert narrower.rows("public.t") == table_of(sql, "SELECT * FROM t")


def test_a_start_that_ended_after_it_changed_the_publication_is_repeated(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed, again(feed, database, "t", "u") as first:
        assert published(sql) == {"t", "u"}
        first.close()
        with again(feed, database, "t", "u") as second:  # from the same token
            second.catch_up()
            assert second.rows("public.u") == table_of(sql, "SELECT * FROM u")


def test_a_table_whose_removal_failed_can_be_watched_again(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RetryableRangefeedError("after the publication was changed")

    with caught_up(database, "t", "u") as feed:
        with monkeypatch.context() as patch:
            patch.setattr(starting, "load_watched", fail)
            with pytest.raises(RetryableRangefeedError, match="after the publication"):
                feed.resume(tables=("t",))
        assert published(sql) == {"t"}
        sql.execute("UPDATE u SET v = 'while it was not published'")
        feed.resume(tables=("t", "u"))
        feed.catch_up()
        assert feed.rows("public.u") == table_of(sql, "SELECT * FROM u")


def test_rows_of_a_table_that_is_published_and_not_watched_are_passed_over(database: str, sql: Sql) -> None:
    with started(database, "t") as feed:
        (name,) = sql.execute("SELECT pubname::text FROM pg_publication").fetchone() or ()
        sql.execute(f'ALTER PUBLICATION "{name}" ADD TABLE u')
        sql.execute("UPDATE u SET v = 'passed over'")
        sql.execute("TRUNCATE u")
        sql.execute("UPDATE t SET v = 'read' WHERE id = 1")
        feed.catch_up()
        assert {change.table for change in feed.changes} == {"public.t"}
        assert feed.rows("public.t") == table_of(sql, "SELECT * FROM t")


def test_an_added_table_that_cannot_be_watched_is_refused_before_anything_changes(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE w (id int)")
    with caught_up(database, "t") as feed:
        feed.close()
        with feed_of(database, "t", "w", feed_id=feed.context.feed_id) as wider:
            check = wider.rangefeed.check
            with pytest.raises(ConfigError, match=r"table .*public\.w has no primary key"):
                check()
            assert published(sql) == {"t"}


@pytest.mark.parametrize(
    ("option", "chosen", "scanned"),
    [
        (True, {"public.*": False}, set()),
        (False, {"public.*": True}, {"public.u", "public.w"}),
        (False, {}, {"public.u", "public.w"}),
        (True, {"public.*": False, "U": True}, {"public.u"}),
    ],
)
def test_it_can_be_chosen_whether_added_tables_are_scanned(
    database: str, sql: Sql, *, option: bool, chosen: dict[str, bool], scanned: set[str]
) -> None:
    sql.execute("CREATE TABLE w AS SELECT * FROM u; ALTER TABLE w ADD PRIMARY KEY (id)")
    with (
        caught_up(database, "t", initial_scan=option) as feed,
        again(feed, database, "t", "public.*", initial_scan=option, initial_scans=chosen) as wider,
    ):
        sql.execute("INSERT INTO u VALUES (1000, 'new'); INSERT INTO w VALUES (1000, 'new')")
        wider.catch_up()
        assert {change.table for change in wider.changes if change.op is Op.SCAN} == scanned
        assert {change.table for change in wider.changes} == {"public.u", "public.w"}


PARTED = (
    "CREATE TABLE split (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF split FOR VALUES FROM (0) TO (100)",
)


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        (("CREATE UNLOGGED TABLE high PARTITION OF split FOR VALUES FROM (100) TO (200)",), "is unlogged"),
        (
            (
                "CREATE UNLOGGED TABLE high (id int PRIMARY KEY)",
                "INSERT INTO high VALUES (150)",
                "ALTER TABLE split ATTACH PARTITION high FOR VALUES FROM (100) TO (200)",
            ),
            "is unlogged",
        ),
        (("ALTER TABLE low SET UNLOGGED", "INSERT INTO low VALUES (7)"), "is unlogged"),
    ],
)
def test_a_partition_whose_rows_are_not_logged_ends_the_changefeed(
    database: str, sql: Sql, statements: tuple[str, ...], what: str
) -> None:
    for statement in PARTED:
        sql.execute(statement)
    with caught_up(database, "split") as feed:
        for statement in statements:
            sql.execute(statement)
        with pytest.raises(TerminalRangefeedError, match=rf"{what}.*Changes since then are lost.*To read all tables"):
            feed.catch_up()


def test_a_table_that_becomes_unlogged_ends_the_changefeed(database: str, sql: Sql) -> None:
    sql.execute("CREATE PUBLICATION everything FOR ALL TABLES WITH (publish_via_partition_root = true)")
    with caught_up(database, "t", options={"publication_name": "everything"}) as feed:
        sql.execute("ALTER TABLE t SET UNLOGGED")
        sql.execute("UPDATE t SET v = v")
        with pytest.raises(TerminalRangefeedError, match=r"table public\.t is unlogged"):
            feed.catch_up()


def test_a_table_is_worked_out_again_only_when_the_catalog_changed(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("t", "u"):
        sql.execute(f"CREATE TYPE kind_of_{name} AS ENUM ('a')")
        sql.execute(f"ALTER TABLE {name} ADD kind kind_of_{name}")
    made: list[TableVersion] = []
    make = versions._make_version
    monkeypatch.setattr(versions, "_make_version", lambda *of, **what: made.append(make(*of, **what)) or made[-1])
    with caught_up(database, "t", "u") as feed:
        assert {len(version.types.types) for version in made} == {1}, "of its own columns"
        made.clear()
        for step in range(3):
            sql.execute("UPDATE t SET v = %s", [str(step)])
            assert feed.step() is not None
        assert not made
        sql.execute("ALTER TABLE u ADD more int")
        assert feed.step() is not None
        assert made
