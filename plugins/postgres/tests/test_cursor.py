"""The option `cursor`: where reading begins in the log, and what is refused because the log may not reach back."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import Any

import pytest
from cdc_rangefeed_postgres.lsn import lsn_text, parse_lsn
from cdc_testing.feeding import Feed, feed_of
from cdc_testing.postgres import Sql, clock, value

from cdc_core import ConfigError, Op, Timestamp

GIVEN = {"slot_name": "s", "publication_name": "p"}
NEWEST = "SELECT pg_current_wal_insert_lsn()::text"


@pytest.fixture(autouse=True)
def table(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    sql.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 100) g")


def make_slot(sql: Sql) -> str:
    """Make the publication and the slot, and return the slot's position."""
    sql.execute("CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root = true)")
    return value(sql, "SELECT lsn::text FROM pg_create_logical_replication_slot('s', 'pgoutput')")


def at_cursor(
    database: str, cursor: object, *, initial_scan: bool = False, **options: Any
) -> AbstractContextManager[Feed]:
    return feed_of(database, "t", options=GIVEN | options, cursor=str(cursor), initial_scan=initial_scan)


def refusal(feed: Feed) -> str:
    with pytest.raises(ConfigError) as raised:
        feed.rangefeed.start(None, lambda intent: pytest.fail(f"{intent} was saved"))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_position_of_the_log_is_exact(database: str, sql: Sql) -> None:
    make_slot(sql)
    sql.execute("INSERT INTO t VALUES (101, 1)")
    sql.execute("SELECT pg_logical_emit_message(false, 'test', 'a record that may not be durable')")
    at = value(sql, NEWEST)
    sql.execute("INSERT INTO t VALUES (102, 1)")
    sql.execute("DELETE FROM t WHERE id = 7")
    with at_cursor(database, at) as feed:
        feed.rangefeed.check()
        feed.start()
        feed.catch_up()
        assert [(change.key, change.op) for change in feed.changes] == [((102,), Op.INSERT), ((7,), Op.DELETE)]


def test_a_transaction_that_is_open_at_the_position_is_after_it(database: str, sql: Sql) -> None:
    make_slot(sql)
    with sql.transaction():
        sql.execute("INSERT INTO t VALUES (101, 1)")
        at = value(sql, NEWEST)
    with at_cursor(database, at) as feed:
        feed.start()
        feed.catch_up()
        assert [change.key for change in feed.changes] == [(101,)]


def test_the_slots_position_is_the_oldest_cursor(database: str, sql: Sql) -> None:
    sql.execute("INSERT INTO t VALUES (101, 1)")
    oldest = make_slot(sql)
    sql.execute("INSERT INTO t VALUES (102, 1)")
    before = lsn_text(parse_lsn(oldest) - 1)
    with at_cursor(database, before) as feed:
        assert refusal(feed) == (
            f"cursor {before} is before {oldest}, the position of replication slot s, and the changes between them are"
            f' gone. Set cursor = "{oldest}" or a later position'
        )
    with at_cursor(database, oldest) as feed:
        feed.start()
        feed.catch_up()
        assert [change.key for change in feed.changes] == [(102,)]


def test_a_position_after_the_end_of_the_log_is_refused(database: str, sql: Sql) -> None:
    make_slot(sql)
    with at_cursor(database, "FF/0") as feed:
        assert re.fullmatch(r"cursor FF/0 is after the end of the log, \S+\. Set an earlier cursor", refusal(feed))


def test_a_scan_with_a_cursor_follows_the_changes_since_the_cursor(database: str, sql: Sql) -> None:
    make_slot(sql)
    sql.execute("INSERT INTO t VALUES (101, 1)")
    at = value(sql, NEWEST)
    sql.execute("UPDATE t SET n = 0 WHERE id = 5")
    with at_cursor(database, at, initial_scan=True) as feed:
        feed.start()
        feed.scan()
        first = feed.changes[0]
        assert (first.key, first.op) == ((5,), Op.UPDATE)
        assert {change.op for change in feed.changes[1:]} == {Op.SCAN}
        assert len(feed.rows("public.t")) == 101


def test_a_time_is_accepted_when_the_slot_has_a_transaction_that_is_not_later(database: str, sql: Sql) -> None:
    oldest = make_slot(sql)
    before = clock(database)
    sql.execute("INSERT INTO t VALUES (101, 1)")
    first = Timestamp(
        value(sql, "SELECT (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1e6)::bigint FROM t WHERE id = 101")
        * 1000
    )
    with at_cursor(database, before) as feed:
        assert refusal(feed) == (
            f"cursor {before} is earlier than {first} ({first.to_datetime().isoformat()}), the first transaction of "
            "replication slot s, so changes before it may be missing. Set that time or a later time, or cursor ="
            f' "{oldest}", the position of the slot, to start with all its changes'
        )
    with at_cursor(database, first) as feed:
        feed.start()


def test_a_slot_without_a_transaction_does_not_tell_how_far_back_it_reaches(database: str, sql: Sql) -> None:
    oldest = make_slot(sql)
    with at_cursor(database, clock(database)) as feed:
        text = refusal(feed)
        assert "replication slot s has no transaction yet, so the time of its oldest change is unknown" in text
        assert f'Set cursor = "{oldest}", the position of the slot' in text


def test_a_publication_that_is_newer_than_the_slot_is_refused(database: str, sql: Sql) -> None:
    sql.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    sql.execute("INSERT INTO t VALUES (101, 1)")
    sql.execute("CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root = true)")
    for cursor in (clock(database), value(sql, NEWEST)):
        with at_cursor(database, cursor) as feed:
            assert refusal(feed).startswith("replication slot s has changes older than publication p")


@pytest.mark.parametrize("missing", ["slot_name", "publication_name"])
def test_a_changefeed_with_its_own_slot_or_publication_has_no_past(database: str, missing: str) -> None:
    options = {name: given for name, given in GIVEN.items() if name != missing}
    with (
        feed_of(database, "t", options=options, cursor="0/1", initial_scan=False) as feed,
        pytest.raises(
            ConfigError, match=f"^cursor 0/1 needs a replication slot older than the cursor.* Set {missing}, or"
        ),
    ):
        feed.rangefeed.check()


def test_a_cursor_that_is_neither_a_time_nor_an_lsn_is_refused(database: str) -> None:
    with (
        at_cursor(database, "yesterday") as feed,
        pytest.raises(ConfigError, match=r"^cursor 'yesterday' is neither a time, such as .*, nor an LSN$"),
    ):
        feed.rangefeed.check()


def test_later_starts_continue_from_the_saved_progress(database: str, sql: Sql) -> None:
    at = make_slot(sql)
    sql.execute("INSERT INTO t VALUES (101, 1)")
    with at_cursor(database, at) as feed:
        feed.start()
        feed.catch_up()
        sql.execute("INSERT INTO t VALUES (102, 1)")
        feed.restart()  # the slot has moved past the cursor
        feed.rangefeed.check()
        feed.catch_up()
        assert [change.key for change in feed.changes] == [(101,), (102,)]
