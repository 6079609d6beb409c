"""TRUNCATE of a watched table or a partition ends the changefeed, or leaves the rows at the sink."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from cdc_rangefeed_postgres import truncation
from cdc_rangefeed_postgres.catalog import Leaf
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.lsn import parse_lsn
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.truncation import TruncateSearch
from cdc_testing.feeding import Feed, caught_up, feed_of, started
from cdc_testing.postgres import Sql, no_free_slot

from cdc_core import TerminalRangefeedError

KEEP = {"truncate": "keep"}
IDS = set(range(1, 2001, 10))
"""The rows of t and p."""


@pytest.fixture(autouse=True)
def tables(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql.execute("CREATE TABLE u (id int PRIMARY KEY, t int REFERENCES t)")
    sql.execute("CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE p0 PARTITION OF p FOR VALUES FROM (0) TO (1000)")
    sql.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (1000) TO (9000)")
    sql.execute("INSERT INTO t SELECT g, repeat('x', 300) FROM generate_series(1, 2000, 10) g")
    sql.execute("INSERT INTO p SELECT * FROM t")
    sql.execute("INSERT INTO u SELECT id, id FROM t WHERE id <= 100")


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
    with caught_up(database, "t", "u", "p") as feed:
        sql.execute("INSERT INTO p VALUES (5000)")
        sql.execute(statement)
        with pytest.raises(TerminalRangefeedError, match=rf"^{who} truncated, .* set truncate = 'keep'\. To read"):
            feed.catch_up()


def test_keep_continues_and_leaves_the_rows_at_the_sink(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    with caught_up(database, "t", "u", options=KEEP) as feed:
        with sql.transaction():
            sql.execute("INSERT INTO t VALUES (5000, 'removed')")
            sql.execute("UPDATE t SET v = 'before' WHERE id = 1")
            sql.execute("TRUNCATE t CASCADE")
            sql.execute("INSERT INTO t VALUES (1, 'after'), (6000, 'new')")
        sql.execute("DELETE FROM t WHERE id = 6000")
        feed.catch_up()
        assert ids(feed, "public.t") == {*IDS, 5000}
        assert feed.rows("public.t")[1,]["v"] == "after"
        assert ids(feed, "public.u") == set(range(1, 101, 10))
        assert warnings(caplog) == ["tables public.t, public.u were truncated; the rows stay at the sink"]


@pytest.mark.parametrize(("table", "partitions"), [("p1", ["p1"]), ("p", ["p0", "p1"])])
def test_keep_leaves_the_rows_of_partitions_at_the_sink(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture, table: str, partitions: list[str]
) -> None:
    with caught_up(database, "p", options=KEEP) as feed:
        sql.execute(f"TRUNCATE {table}")
        sql.execute("INSERT INTO p VALUES (1001, 'after'), (5000, 'new')")
        feed.catch_up()
        feed.restart()
        feed.catch_up()
        assert ids(feed, "public.p") == {*IDS, 5000}
        assert feed.rows("public.p")[1001,]["v"] == "after"
        names = ", ".join(f"public.{name}" for name in partitions)
        counted = "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"
        verb = "was" if len(partitions) == 1 else "were"
        assert f"table public.p: {counted} ({names}) {verb} truncated; the rows stay at the sink" in warnings(caplog)


@pytest.mark.parametrize("table", ["t", "p", "p1"])
def test_keep_continues_a_scan_with_the_rows_that_are_left(database: str, sql: Sql, table: str) -> None:
    watched = table[0]
    sql.execute(
        f"INSERT INTO {watched} SELECT g, repeat('x', 300) FROM generate_series(1, 2000) g ON CONFLICT DO NOTHING"
    )
    with started(database, watched, options=KEEP, bytes_=100_000) as feed:
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
    with caught_up(database, "p", options=KEEP) as feed:
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
    with caught_up(database, "p") as feed:
        sql.execute("ALTER TABLE p1 SET ACCESS METHOD other")
        with pytest.raises(TerminalRangefeedError, match=r"1 partition \(public\.p1\) was truncated"):
            feed.catch_up()


def test_a_truncated_partition_is_found_in_the_log_after_its_statistics_were_gathered(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    sql.execute('CREATE TABLE "p, public.p0, 2" PARTITION OF p FOR VALUES FROM (9000) TO (9999)')
    with caught_up(database, "p") as feed:
        sql.execute("INSERT INTO p VALUES (3000, 'table public.p0: TRUNCATE: (no-flags)')")
        sql.execute("VACUUM (FULL, ANALYZE) p")
        feed.catch_up()
        assert warnings(caplog) == []
        for truncated, shown in (("p1", "p1"), ('"p, public.p0, 2"', r"p, public\.p0, 2")):
            sql.execute(f"TRUNCATE {truncated}; ANALYZE p")
            sql.execute("VACUUM FULL p0")
            sql.execute("ANALYZE p")
            feed.resume(options={})
            with pytest.raises(
                TerminalRangefeedError, match=rf"^table \S+p: 1 partition \(public\.{shown}\) was trunc"
            ):
                feed.catch_up()
            feed.resume(options=KEEP)
            feed.catch_up()


@pytest.mark.parametrize(("found_in", "remedy"), [("the log", "keep"), ("the catalog", "read again")])
def test_a_changefeed_that_ended_for_a_truncated_partition_ends_again_until_a_remedy_is_chosen(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture, found_in: str, remedy: str
) -> None:
    with caught_up(database, "p", "t") as feed:
        sql.execute("TRUNCATE p1; INSERT INTO p VALUES (5000, 'new')")
        if found_in == "the log":
            sql.execute("ANALYZE p")
        for later in ("VACUUM (FULL, ANALYZE) p", "ALTER TABLE p ADD COLUMN w int"):
            with pytest.raises(TerminalRangefeedError, match=r"^table public\.p: 1 partition \(public\.p1\) was trunc"):
                feed.catch_up()
            sql.execute(later)
            sql.execute("INSERT INTO t SELECT max(id) + 1 FROM t")
            feed.resume(options={})
        assert max(ids(feed, "public.t")) == 1992  # what was committed before it ended
        assert warnings(caplog) == []
        if remedy == "keep":
            feed.resume(options=KEEP)
            feed.catch_up()
            assert warnings(caplog) == [
                "table public.p: 1 partition (public.p1) was truncated; the rows stay at the sink"
            ]
        else:
            feed.resume(tables=("t",))
            feed.catch_up()
            feed.resume(tables=("p", "t"))
            feed.catch_up()
        sql.execute("INSERT INTO p VALUES (6000, 'later')")
        feed.resume(options={})
        feed.catch_up()
        assert {5000, 6000, 1993} <= ids(feed, "public.p") | ids(feed, "public.t")


@pytest.mark.parametrize("at_once", [True, False])
def test_a_truncated_partition_does_not_hide_that_of_another_table(database: str, sql: Sql, at_once: bool) -> None:
    sql.execute("CREATE TABLE q (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE q1 PARTITION OF q FOR VALUES FROM (0) TO (1000)")
    sql.execute("INSERT INTO q SELECT generate_series(1, 100)")
    with caught_up(database, "p", "q") as feed:
        sql.execute("TRUNCATE p1")
        if not at_once:
            with pytest.raises(TerminalRangefeedError, match=r"public\.p1"):
                feed.catch_up()
            feed.resume(options={})
        sql.execute("TRUNCATE q1; ANALYZE q")
        with pytest.raises(TerminalRangefeedError, match=r"public\.p1"):
            feed.catch_up()
        feed.resume(tables=("q",))
        with pytest.raises(TerminalRangefeedError, match=r"public\.q1"):
            feed.catch_up()


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The places from which the log was searched."""
    found: list[int] = []
    search = TruncateSearch._search

    def noted(self: TruncateSearch, connection: Connection, copy: str, after: int) -> list[str]:
        found.append(after)
        return search(self, connection, copy, after)

    monkeypatch.setattr(TruncateSearch, "_search", noted)
    return found


def test_the_log_is_searched_once_for_all_tables_and_not_when_rows_are_kept(
    database: str, sql: Sql, searches: list[int]
) -> None:
    sql.execute("CREATE TABLE q (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE q0 PARTITION OF q FOR VALUES FROM (0) TO (1000)")
    for options, count in ((None, 1), (KEEP, 0)):
        with caught_up(database, "p", "q", options=options) as feed:
            searches.clear()
            sql.execute("VACUUM (FULL, ANALYZE) p")
            sql.execute("VACUUM (FULL, ANALYZE) q")
            feed.catch_up()
            assert len(searches) == count


def leaf_of(feed: Feed, name: str) -> Leaf:
    catalog = feed.planner._watched.catalog
    (found,) = (leaf for leaf in catalog.tables["public.p"].leaves if leaf.name == name)
    return found


def test_a_truncate_that_ends_where_the_search_begins_was_noted_before(database: str, sql: Sql) -> None:
    with caught_up(database, "p", options=KEEP) as feed:
        slot, leaf = Slot.of(feed.context), leaf_of(feed, "p1")
        sql.execute("TRUNCATE p1")
        sql.execute("SELECT pg_copy_logical_replication_slot(%s, 'peeked', true, 'test_decoding')", [slot.name])
        query = (
            "SELECT max(lsn)::text FROM pg_logical_slot_peek_changes('peeked', NULL, NULL) WHERE data LIKE 'COMMIT%'"
        )
        row = sql.execute(query).fetchone()
        assert row is not None
        sql.execute("SELECT pg_drop_replication_slot('peeked')")
        end = parse_lsn(row[0])
        assert TruncateSearch(slot).truncated(sql, [(leaf, 1)], after=end) == []
        assert TruncateSearch(slot).truncated(sql, [(leaf, 1)], after=end - 1) == [leaf]


def test_the_search_waits_for_a_free_slot(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with feed_of(database, "p") as feed, ExitStack() as slots:
        monkeypatch.setattr(truncation.time, "sleep", lambda _: slots.close())
        feed.start()
        feed.catch_up()
        sql.execute("TRUNCATE p1; ANALYZE p")
        slots.enter_context(no_free_slot(sql))
        with pytest.raises(TerminalRangefeedError, match=r"1 partition \(public\.p1\) was truncated"):
            feed.catch_up()
        assert not warnings(caplog)


def test_without_a_free_slot_a_search_is_not_taken_for_one_that_found_nothing(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truncation, "_TRY_AGAIN_S", 0.0)
    with caught_up(database, "p") as feed:
        after, asked = parse_lsn(feed.token["lsn"]), [(leaf_of(feed, "p1"), 1)]
        search = TruncateSearch(Slot.of(feed.context))
        sql.execute("TRUNCATE p1; ANALYZE p")
        with no_free_slot(sql):
            assert [search.truncated(sql, asked, after=after) for _ in range(2)] == [[], []]
        assert warnings(caplog) == [
            "partitions public.p1 have new files, but the log cannot be searched for TRUNCATE: all replication slots"
            " are in use, or the slot is being moved"
        ]
        assert [leaf.name for leaf in search.truncated(sql, asked, after=after)] == ["p1"]


LIMITS = {"time": "statement timeout", "room": "temp_file_limit", "plugin": "no_such_plugin"}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_search_that_cannot_be_done_says_that_a_truncated_partition_may_be_missed(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    with caught_up(database, "p") as feed:
        after, asked = parse_lsn(feed.token["lsn"]), [(leaf_of(feed, "p1"), 1)]
        sql.execute("INSERT INTO p SELECT g, repeat('x', 300) FROM generate_series(2001, 8000) g; TRUNCATE p1")
        if limit == "time":
            monkeypatch.setattr(truncation, "_LIMIT_S", 0.001)
        elif limit == "plugin":
            monkeypatch.setattr(truncation, "_DECODER", "no_such_plugin")
        else:
            sql.execute("SET work_mem = '64kB'; SET temp_file_limit = '64kB'")
        search = TruncateSearch(Slot.of(feed.context))
        assert [search.truncated(sql, asked, after=after) for _ in range(2)] == [[], []]
        sql.execute("RESET work_mem; RESET temp_file_limit")
        (warning,) = warnings(caplog)
        assert warning.startswith("partitions public.p1 have new files, but the log cannot be searched for TRUNCATE: ")
        assert LIMITS[limit] in warning
        assert sql.execute("SHOW statement_timeout").fetchone() == ("0",)
        assert sql.execute("SELECT FROM pg_replication_slots WHERE slot_name LIKE '%\\_copy\\_%'").rowcount == 0
