"""Another position in the log for a changefeed that is stopped: what is left out, what comes again, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cdc_rangefeed_postgres.lsn import lsn_text, parse_lsn
from cdc_rangefeed_postgres.moving import placed
from cdc_rangefeed_postgres.token import PostgresToken, TableState
from cdc_testing.feeding import Feed, caught_up, started
from cdc_testing.postgres import Sql, clock, value
from hypothesis import assume, given
from hypothesis import strategies as st

from cdc_core import ConfigError, HistoryLostError, Op, Rescan, SchemaChangeRules, TerminalRangefeedError, Timestamp

SLOT = "FROM pg_replication_slots WHERE database = current_database()"
STATE = TableState(oid=1, key=("id",), version=1, shape="")
NEWEST = "SELECT pg_current_wal_insert_lsn()::text"


@pytest.fixture(autouse=True)
def table(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    sql.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 5) g")


def insert(sql: Sql, *ids: int) -> str:
    """Insert rows, each in a transaction, and return the position after them and a record that may not be durable."""
    for id_ in ids:
        sql.execute("INSERT INTO t VALUES (%s, 0)", [id_])
    sql.execute("SELECT pg_logical_emit_message(false, 'test', 'of another program')")
    return str(value(sql, NEWEST))


def refusal(feed: Feed, to: object) -> str:
    with pytest.raises(ConfigError) as raised:
        feed.rangefeed.move(feed.token, to if isinstance(to, str | dict) else str(to))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def resumed(feed: Feed) -> None:
    feed.start()
    feed.catch_up()


def arrived(feed: Feed, known: int) -> list[int]:
    """Start the changefeed again, and return the keys that arrive after the first *known* changes."""
    resumed(feed)
    return [change.key[0] for change in feed.changes[known:]]


def test_exactly_the_rows_after_the_new_position_arrive(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed:
        known, resolved, latest = len(feed.changes), dict(feed.resolved), feed.latest
        before = feed.token["lsn"]
        at = insert(sql, 11, 12)
        insert(sql, 13, 14)
        found = feed.move(at)
        assert (found.before, found.after, found.back) == (before, at, False)
        assert arrived(feed, known) == [13, 14]
        assert all(change.updated > latest for change in feed.changes[known:])
        assert all(feed.resolved[table] > mark for table, mark in resolved.items())
        insert(sql, 15)
        feed.move("now")
        insert(sql, 16)
        assert arrived(feed, known + 2) == [16]


def test_a_start_lets_the_server_forget_what_is_left_out_before_it_is_decoded(database: str, sql: Sql) -> None:
    confirmed = f"SELECT confirmed_flush_lsn::text {SLOT}"
    with caught_up(database, "t") as feed:
        insert(sql, 11)
        at, before = value(sql, "SELECT pg_current_wal_flush_lsn()::text"), value(sql, confirmed)
        feed.move(at)
        assert value(sql, confirmed) == before, "until then the move can be undone"
        feed.start()
        assert parse_lsn(value(sql, confirmed)) >= parse_lsn(at)


def test_a_time_means_what_was_committed_after_it(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed:
        known, early = len(feed.changes), clock(database)
        insert(sql, 11)
        at = clock(database)
        insert(sql, 12)
        feed.move(str(at))
        assert arrived(feed, known) == [12]
        insert(sql, 13)
        late = clock(database)
        feed.move(str(late))
        assert "is later than the source's clock" in refusal(feed, Timestamp(late.wall + 10**15))
        assert "so changes before it may be missing" in refusal(feed, early)
        assert arrived(feed, known + 1) == []


def test_a_time_is_refused_when_what_was_committed_after_it_may_be_gone(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed:
        at = clock(database)
        insert(sql, 11)
        sql.execute(f"SELECT pg_replication_slot_advance(slot_name, pg_current_wal_flush_lsn()) {SLOT}")
        insert(sql, 12)
        assert "so changes before it may be missing; move to" in refusal(feed, at)


def test_a_move_is_undone_before_the_next_start(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed:
        known, before = len(feed.changes), feed.token
        at = insert(sql, 11)
        feed.move(at)
        assert feed.move(before).back
        insert(sql, 12)
        assert arrived(feed, known) == [11, 12]


def test_rows_come_again_in_order_above_all_before_and_nothing_is_resolved_meanwhile(database: str, sql: Sql) -> None:
    with caught_up(database, "t", bytes_=256) as feed:
        before = feed.token["lsn"]
        insert(sql, 11, 12)
        sql.execute("UPDATE t SET n = 7 WHERE id = 11")
        feed.releases = False
        feed.catch_up()
        known, latest, resolved = len(feed.changes), feed.latest, dict(feed.resolved)
        passed = feed.token["lsn"]
        assert feed.move(before).back
        feed.start()
        while parse_lsn(feed.token["lsn"]) < parse_lsn(passed):
            assert dict(feed.resolved) == resolved
            feed.step()
        insert(sql, 13)
        feed.catch_up()
        again = feed.changes[known:]
        assert [(change.op, change.key[0]) for change in again] == [
            (Op.INSERT, 11),
            (Op.INSERT, 12),
            (Op.UPDATE, 11),
            (Op.INSERT, 13),
        ]
        assert all(change.updated > latest for change in again)
        assert "again" not in feed.token
        assert all(mark > latest for mark in feed.resolved.values())


def test_what_was_altered_in_between_is_found_and_backfilled(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed:
        known = len(feed.changes)
        insert(sql, 11)
        sql.execute("ALTER TABLE t ADD COLUMN v text DEFAULT 'new'")
        at = insert(sql, 12)
        sql.execute("INSERT INTO t VALUES (13, 0, 'mine')")
        feed.move(at)
        resumed(feed)
        logged = [change for change in feed.changes[known:] if not change.scanned]
        assert [(change.key[0], change.after) for change in logged] == [(13, {"id": 13, "n": 0, "v": "mine"})]
        scanned = {change.key[0]: change.after for change in feed.changes[known:] if change.scanned}
        assert scanned[1] == {"id": 1, "n": 1, "v": "new"}, "rows that exist are read for the new column"
        assert sorted(scanned) == [1, 2, 3, 4, 5, 11, 12, 13]


def test_the_policy_to_stop_holds_for_what_is_left_out(database: str, sql: Sql) -> None:
    with caught_up(database, "t", schema_changes=SchemaChangeRules(policy="stop")) as feed:
        sql.execute("ALTER TABLE t ADD COLUMN v text DEFAULT 'new'")
        feed.move(insert_with(sql))
        with pytest.raises(TerminalRangefeedError, match="column v was added"):
            resumed(feed)


def insert_with(sql: Sql) -> str:
    sql.execute("INSERT INTO t VALUES (11, 0, 'v')")
    return str(value(sql, NEWEST))


def test_it_continues_behind_what_it_ended_for(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed:
        known = len(feed.changes)
        sql.execute("TRUNCATE t")
        with pytest.raises(TerminalRangefeedError, match="truncated"):
            feed.catch_up()
        feed.move("now")
        insert(sql, 11)
        assert arrived(feed, known) == [11]
        insert(sql, 12)
        sql.execute(f"SELECT pg_replication_slot_advance(slot_name, pg_current_wal_flush_lsn()) {SLOT}")
        feed.close()
        with pytest.raises(HistoryLostError, match="by another program"):
            feed.restart()
        feed.move("now")
        insert(sql, 13)
        assert arrived(feed, known + 1) == [13]


def test_it_does_not_go_back_over_a_change_of_shape(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed:
        before, feed.releases = feed.token["lsn"], False
        insert(sql, 11)
        sql.execute("ALTER TABLE t ADD COLUMN v text")
        feed.catch_up()
        sql.execute("INSERT INTO t VALUES (12, 0, 'x')")
        feed.catch_up()
        feed.close()
        assert "were last scanned or altered, so older rows would have an old shape" in refusal(feed, before)


def test_large_values_that_were_left_out_are_looked_up_until_the_table_is_scanned(database: str, sql: Sql) -> None:
    sql.execute("ALTER TABLE t ADD COLUMN body text")
    sql.execute("ALTER TABLE t ALTER COLUMN body SET STORAGE EXTERNAL")
    sql.execute("UPDATE t SET body = repeat('x', 5000) WHERE id = 1")
    with caught_up(database, "t") as feed:
        known, before = len(feed.changes), feed.token
        sql.execute("UPDATE t SET body = repeat('y', 5000) WHERE id = 1")
        sql.execute("INSERT INTO t VALUES (11, 0, repeat('z', 5000))")
        feed.move("now")
        sql.execute("UPDATE t SET n = 7 WHERE id IN (1, 11)")
        resumed(feed)
        assert [change.unavailable for change in feed.changes[known:]] == [(), ()]
        bodies = {key[0]: row["body"] for key, row in feed.rows("public.t").items()}
        assert (bodies[1], bodies[11]) == ("y" * 5000, "z" * 5000), "what the table holds, not what arrived last"
        feed.restart()
        sql.execute("UPDATE t SET n = 8 WHERE id = 11")
        feed.catch_up()
        assert feed.changes[-1].unavailable == (), "as long as the table was not scanned"
        feed.ask(Rescan(table=None, where=None))
        feed.steps_until(lambda: feed.token["scan"] is not None)
        feed.catch_up()
        sql.execute("UPDATE t SET n = 9 WHERE id = 11")
        feed.catch_up()
        assert feed.changes[-1].unavailable == ("body",), "the consumer has the value now"
        assert "left_out" not in before["tables"]["public.t"]


@pytest.mark.parametrize("key", ["int[]", "pair"])
def test_a_table_whose_rows_cannot_be_looked_up_goes_on_after_a_move(database: str, sql: Sql, key: str) -> None:
    sql.execute("CREATE TYPE pair AS (a int, b int)")
    sql.execute(f"CREATE TABLE a (id {key} PRIMARY KEY, n int, body text)")
    sql.execute("ALTER TABLE a ALTER COLUMN body SET STORAGE EXTERNAL")
    one = "'{1}'" if key == "int[]" else "'(1,2)'"
    sql.execute(f"INSERT INTO a VALUES ({one}, 0, repeat('x', 5000))")
    with caught_up(database, "a") as feed:
        sql.execute("UPDATE a SET n = 1")
        feed.move("now")
        sql.execute("UPDATE a SET n = 2")
        resumed(feed)
        last = feed.changes[-1]
        assert last.after is not None
        assert (last.after["n"], last.unavailable) == (2, ("body",))


def test_nothing_is_looked_up_after_a_move_that_was_undone(database: str, sql: Sql) -> None:
    sql.execute("ALTER TABLE t ADD COLUMN body text")
    sql.execute("ALTER TABLE t ALTER COLUMN body SET STORAGE EXTERNAL")
    sql.execute("UPDATE t SET body = repeat('x', 5000) WHERE id = 1")
    with caught_up(database, "t") as feed:
        before = feed.token
        insert_with_body(sql)
        feed.move("now")
        feed.move(before)
        assert {**feed.token, "clock": before["clock"], "settled": before["settled"]} == before
        sql.execute("UPDATE t SET n = 7 WHERE id = 1")
        resumed(feed)
        assert feed.changes[-1].unavailable == ("body",)


def insert_with_body(sql: Sql) -> None:
    sql.execute("INSERT INTO t VALUES (11, 0, repeat('z', 5000))")


def test_what_has_begun_to_come_again_is_not_left_out_half_way(database: str, sql: Sql) -> None:
    with caught_up(database, "t", bytes_=256) as feed:
        before, feed.releases = feed.token["lsn"], False
        for n in range(1, 9):
            sql.execute("UPDATE t SET n = %s WHERE id = 1", [10 * n])
        feed.catch_up()
        known, passed = len(feed.changes), feed.token["lsn"]
        feed.move(before)
        feed.move(passed)
        resumed(feed)
        assert len(feed.changes) == known, "as nothing has come again, that was undone"
        passed = feed.token["lsn"]
        feed.move(before)
        feed.start()
        feed.steps_until(lambda: feed.rows("public.t")[1,]["n"] == 40)
        feed.close()
        for to in (passed, "now"):
            assert "are being delivered again, so the sink would keep old versions" in refusal(feed, to)
        part = feed.token["lsn"]
        feed.move(before)
        assert "wait until the changefeed has reached that position" in refusal(feed, passed)
        feed.move(part)
        resumed(feed)
        assert feed.rows("public.t")[1,]["n"] == 80
        assert feed.move(insert(sql, 11)).forward


LSNS = st.integers(50, 200)


@given(
    st.builds(
        PostgresToken,
        lsn=st.just(100),
        again=st.sampled_from([0, 100, 150]),
        tables=st.just({"t": STATE}),
        catalog=st.just(""),
        settled=st.just(0),
        since=st.just(40),
    ),
    LSNS,
    LSNS,
)
def test_several_moves_are_as_the_last_one(saved: PostgresToken, first: int, last: int) -> None:
    assume(not saved.lsn < saved.again or max(first, last) <= saved.lsn)  # that is refused
    if last == saved.lsn:
        saved = replace(saved, again=saved.again if saved.again > saved.lsn else 0)
        assert placed(placed(saved, first), last) == saved
    else:
        assert placed(placed(saved, first), last) == placed(saved, last)


def test_a_slot_that_is_moved_while_it_is_read_is_an_error(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed:
        insert(sql, 11)
        slices = feed.slices()
        sql.execute(f"SELECT pg_replication_slot_advance(slot_name, pg_current_wal_flush_lsn()) {SLOT}")
        with pytest.raises(HistoryLostError, match="was moved to"):
            list(feed.reader.read(slices[0]))


def test_what_cannot_be_is_refused_in_one_sentence(database: str, sql: Sql) -> None:
    with started(database, "t") as feed:
        assert "its tables are being scanned" in refusal(feed, "now")
        feed.catch_up()
        insert(sql, 11)
        feed.catch_up()
        insert(sql, 12)
        feed.close()
        lsn = parse_lsn(feed.token["lsn"])
        assert "is after the end of the log" in refusal(feed, "FFFF/0")
        earlier = lsn_text(lsn - (1 << 20))
        assert "where the log retained by replication slot" in refusal(feed, earlier)
        for wrong in ("tomorrow", "1/2/3", "1.9999999999", "9" * 5000 + ".0000000000", {"position": "0/1"}, {"lsn": 7}):
            assert "is neither 'now', nor a time" in refusal(feed, wrong)
        sql.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
        )
        assert "no longer exists" in refusal(feed, "now")
