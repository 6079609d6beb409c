"""TRUNCATE of a watched table or a partition ends the changefeed, or leaves the rows at the sink."""

from __future__ import annotations

import pytest
from cdc_rangefeed_postgres import truncation
from cdc_testing.feeding import Feed, feed_of
from cdc_testing.postgres import Sql

from cdc_core import TerminalRangefeedError

KEEP = {"truncate": "keep"}


@pytest.fixture(autouse=True)
def tables(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql.execute("CREATE TABLE u (id int PRIMARY KEY, t int REFERENCES t)")
    sql.execute("CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE p0 PARTITION OF p FOR VALUES FROM (0) TO (1000)")
    sql.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (1000) TO (9000)")
    sql.execute("INSERT INTO t SELECT g, repeat('x', 300) FROM generate_series(1, 2000) g")
    sql.execute("INSERT INTO p SELECT g, repeat('x', 300) FROM generate_series(1, 2000) g")
    sql.execute("INSERT INTO u SELECT g, g FROM generate_series(1, 100) g")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def ids(feed: Feed, table: str) -> set[int]:
    return {key[0] for key in feed.rows(table)}


@pytest.mark.parametrize(
    ("statement", "who"),
    [
        ("TRUNCATE t CASCADE", r"tables public\.t, public\.u were"),
        ("TRUNCATE u", r"table public\.u was"),
        ("TRUNCATE p", r"table public\.p was"),
        ("TRUNCATE p1", r"table public\.p: 1 partition \(public\.p1\) was"),
    ],
)
def test_a_truncated_table_ends_the_changefeed_with_a_remedy(database: str, sql: Sql, statement: str, who: str) -> None:
    with feed_of(database, "t", "u", "p") as feed:
        feed.start()
        feed.catch_up()
        sql.execute("INSERT INTO p VALUES (5000)")
        sql.execute(statement)
        with pytest.raises(TerminalRangefeedError, match=rf"^{who} truncated, .* set truncate = 'keep'\. To read"):
            feed.catch_up()


def test_keep_continues_and_leaves_the_rows_at_the_sink(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    with feed_of(database, "t", "u", options=KEEP) as feed:
        feed.start()
        feed.catch_up()
        with sql.transaction():
            sql.execute("INSERT INTO t VALUES (5000, 'removed')")
            sql.execute("UPDATE t SET v = 'before' WHERE id = 1")
            sql.execute("TRUNCATE t CASCADE")
            sql.execute("INSERT INTO t VALUES (1, 'after'), (6000, 'new')")
        sql.execute("DELETE FROM t WHERE id = 6000")
        feed.catch_up()
        assert ids(feed, "public.t") == {*range(1, 2001), 5000}
        assert feed.rows("public.t")[1,]["v"] == "after"
        assert ids(feed, "public.u") == set(range(1, 101))
        assert warnings(caplog) == ["tables public.t, public.u were truncated; the rows stay at the sink"]


@pytest.mark.parametrize(("table", "partitions"), [("p1", ["p1"]), ("p", ["p0", "p1"])])
def test_keep_leaves_the_rows_of_partitions_at_the_sink(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture, table: str, partitions: list[str]
) -> None:
    with feed_of(database, "p", options=KEEP) as feed:
        feed.start()
        feed.catch_up()
        sql.execute(f"TRUNCATE {table}")
        sql.execute("INSERT INTO p VALUES (1001, 'after'), (5000, 'new')")
        feed.catch_up()
        feed.restart()
        feed.catch_up()
        assert ids(feed, "public.p") == {*range(1, 2001), 5000}
        assert feed.rows("public.p")[1001,]["v"] == "after"
        names = ", ".join(f"public.{name}" for name in partitions)
        counted = "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"
        verb = "was" if len(partitions) == 1 else "were"
        assert f"table public.p: {counted} ({names}) {verb} truncated; the rows stay at the sink" in warnings(caplog)


@pytest.mark.parametrize("table", ["t", "p", "p1"])
def test_keep_continues_a_scan_with_the_rows_that_are_left(database: str, sql: Sql, table: str) -> None:
    watched = table[0]
    with feed_of(database, watched, options=KEEP, bytes_=100_000) as feed:
        feed.start()
        feed.steps_until(lambda: len(feed.changes) > 300)
        sent = {change.key[0] for change in feed.changes}
        sql.execute(f"TRUNCATE {table} CASCADE")
        sql.execute(f"INSERT INTO {watched} VALUES (1500, 'after'), (5000, 'new')")
        feed.catch_up()
        left = {row[0] for row in sql.execute(f"SELECT id FROM {watched}")}
        assert ids(feed, f"public.{watched}") == sent | left
        assert feed.rows(f"public.{watched}")[1500,]["v"] == "after"


def test_partitions_that_are_written_anew_are_not_truncated(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    sql.execute("DELETE FROM p WHERE id > 1000")
    with feed_of(database, "p", options=KEEP) as feed:
        feed.start()
        feed.catch_up()
        sql.execute("VACUUM FULL p")
        feed.catch_up()
        sql.execute("CLUSTER p0 USING p0_pkey")
        sql.execute("CLUSTER p1 USING p1_pkey")
        sql.execute("CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler")
        sql.execute("ALTER TABLE p0 SET ACCESS METHOD other")
        feed.catch_up()
        assert not warnings(caplog)


def test_an_access_method_that_is_set_for_an_empty_partition_looks_like_truncate(database: str, sql: Sql) -> None:
    """Ending the changefeed without need is better than missing a TRUNCATE."""
    sql.execute("CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler")
    sql.execute("DELETE FROM p WHERE id >= 1000")
    with feed_of(database, "p") as feed:
        feed.start()
        feed.catch_up()
        sql.execute("ALTER TABLE p1 SET ACCESS METHOD other")
        with pytest.raises(TerminalRangefeedError, match=r"1 partition \(public\.p1\) was truncated"):
            feed.catch_up()


def test_a_truncated_partition_is_found_in_the_log_after_its_statistics_were_gathered(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    sql.execute('CREATE TABLE "p, 2" PARTITION OF p FOR VALUES FROM (9000) TO (9999)')
    with feed_of(database, "p", options=KEEP) as feed:
        feed.start()
        feed.catch_up()
        sql.execute("INSERT INTO p VALUES (3000, 'table public.p0: TRUNCATE: (no-flags)')")
        sql.execute("VACUUM (FULL, ANALYZE) p")
        feed.catch_up()
        assert warnings(caplog) == []
        for truncated, shown in (("p1", "p1"), ('"p, 2"', "p, 2")):
            caplog.clear()
            sql.execute(f"TRUNCATE {truncated}; ANALYZE p")
            sql.execute("VACUUM FULL p0")
            sql.execute("ANALYZE p")
            feed.catch_up()
            feed.catch_up()
            assert warnings(caplog) == [
                f"table public.p: 1 partition (public.{shown}) was truncated; the rows stay at the sink".replace(
                    "public.p:", f"{feed.rangefeed.schemas()[0].name}:"
                )
            ]


def test_a_server_without_the_plugin_says_that_a_truncated_partition_may_be_missed(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truncation, "_DECODER", "no_such_plugin")
    with feed_of(database, "p") as feed:
        feed.start()
        feed.catch_up()
        sql.execute("TRUNCATE p1; ANALYZE p")
        feed.catch_up()
        (warning,) = warnings(caplog)
        assert warning.startswith("partitions public.p1 have new files, and the log cannot be searched for TRUNCATE: ")
        assert "no_such_plugin" in warning
