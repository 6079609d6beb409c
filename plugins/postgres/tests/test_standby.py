"""A changefeed whose source is a standby: slot, initial scan and changes are read there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres import kept_log, log_slice
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.feeding import Feed, caught_up, feed_of
from cdc_testing.postgres import Sql, table_of
from cdc_testing.runs import eventually
from cdc_testing.standby import standby_of
from cdc_testing.versions import UnavailableError, binaries_of

from cdc_core import ConfigError, HistoryLostError, Op, RetryableRangefeedError, TerminalRangefeedError

PUBLICATION = {"publication_name": "shop"}


@pytest.fixture
def sql(pair: tuple[EmbeddedPostgres, EmbeddedPostgres]) -> Iterator[Sql]:
    """A connection to the primary, with a table of 100 rows and its publication."""
    with psycopg.connect(pair[0].uri(), autocommit=True) as connection:
        create(connection)
        yield connection
        connection.execute("DROP PUBLICATION shop")
        connection.execute("DROP TABLE t")


def create(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    sql.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 100) g")
    sql.execute("CREATE PUBLICATION shop FOR TABLE t WITH (publish_via_partition_root = true)")


@contextmanager
def logging_transactions(primary: EmbeddedPostgres) -> Iterator[None]:
    """Let the primary log its running transactions again and again, as a busy one does every 15 seconds."""
    stop = threading.Event()

    def work() -> None:
        with psycopg.connect(primary.uri(), autocommit=True) as connection:
            while not stop.wait(0.05):
                connection.execute("SELECT pg_log_standby_snapshot()")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def notice(feed: Feed) -> str:
    feed.history.metrics()
    return feed.history.notice() or ""


def keep_session(feed: Feed, writer: Sql, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open a transaction of *writer*, and return when a session has given a slice of the log behind it."""
    monkeypatch.setattr(kept_log, "MIN_AGAIN_BYTES", 256 << 10)
    monkeypatch.setattr(kept_log, "_POLL_INTERVAL_S", 0.0)
    numbers = iter(range(1000, 2000))
    writer.execute("INSERT INTO t VALUES (500, 500)")
    sql.execute("SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1000000))")

    def served() -> bool:
        sql.execute("INSERT INTO t VALUES (%s, 1)", [next(numbers)])
        (slice_,) = feed.slices()
        feed.catch_up()
        return bool(slice_.payload.session)

    eventually("a slice that a session has", served)


def test_behind_an_open_transaction_of_the_primary_a_session_is_kept_on_the_standby(
    pair: tuple[EmbeddedPostgres, EmbeddedPostgres], sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, standby = pair
    with logging_transactions(primary), caught_up(standby.uri(), "t", checked=True, options=PUBLICATION) as feed:
        with psycopg.connect(primary.uri()) as writer:
            keep_session(feed, writer, sql, monkeypatch)
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT * FROM t")


@pytest.mark.parametrize("worth_bytes", [log_slice.WORTH_BYTES, 1], ids=["from the slot", "from copies"])
def test_scan_and_changes_are_read_from_the_standby(
    pair: tuple[EmbeddedPostgres, EmbeddedPostgres],
    sql: Sql,
    worth_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(log_slice, "WORTH_BYTES", worth_bytes)
    primary, standby = pair
    with logging_transactions(primary), caught_up(standby.uri(), "t", checked=True, options=PUBLICATION) as feed:
        assert sum(change.op is Op.SCAN for change in feed.changes) == 100
        sql.execute("UPDATE t SET v = -v WHERE id <= 10")
        sql.execute("DELETE FROM t WHERE id = 20")
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT * FROM t")
        feed.restart()
        sql.execute("INSERT INTO t VALUES (200, 200)")
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT * FROM t")
        assert sql.execute("SELECT FROM pg_replication_slots WHERE slot_type = 'logical'").rowcount == 0
    assert "the log more slowly" not in caplog.text


def test_schema_boundaries_are_found_on_the_standby(pair: tuple[EmbeddedPostgres, EmbeddedPostgres], sql: Sql) -> None:
    primary, standby = pair
    with (
        logging_transactions(primary),
        caught_up(standby.uri(), "t", options=PUBLICATION) as feed,
        psycopg.connect(primary.uri()) as other,
    ):
        other.execute("ALTER TABLE t ADD COLUMN c int DEFAULT 7")
        begun = feed.now()
        for number in range(3):
            sql.execute("CREATE TABLE IF NOT EXISTS u (id int)")
            sql.execute("INSERT INTO u VALUES (%s)", [number])
            feed.step()
        assert max(feed.resolved.values()) < begun
        other.commit()
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT * FROM t")
        sql.execute("TRUNCATE t")
        with pytest.raises(TerminalRangefeedError, match="truncated"):
            feed.catch_up()
        sql.execute("DROP TABLE u")


@pytest.mark.usefixtures("sql")
def test_a_standby_whose_replay_is_paused_is_named(pair: tuple[EmbeddedPostgres, EmbeddedPostgres]) -> None:
    primary, standby = pair
    with (
        logging_transactions(primary),
        caught_up(standby.uri(), "t", options=PUBLICATION) as feed,
        psycopg.connect(standby.uri(), autocommit=True) as there,
    ):
        assert not notice(feed)
        there.execute("SELECT pg_wal_replay_pause()")
        assert notice(feed).startswith("the replay of the standby is paused")
        there.execute("SELECT pg_wal_replay_resume()")
        assert not notice(feed)


def test_an_idle_primary_is_named_when_the_slot_waits_for_it(
    pair: tuple[EmbeddedPostgres, EmbeddedPostgres], sql: Sql
) -> None:
    _, standby = pair
    remedy = pytest.raises(RetryableRangefeedError, match=r"Run SELECT pg_log_standby_snapshot\(\); on the primary")
    with feed_of(standby.uri(), "t", options={**PUBLICATION, "snapshot_wait": 0.2}) as feed, remedy:
        feed.start()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {},
            "is a standby and cannot create a publication. Create a publication on the primary and set"
            " publication_name",
        ),
        ({**PUBLICATION, "failover": True}, "only the primary's slots are synchronized to standbys"),
        ({"publication_name": "none"}, "publication none does not exist"),
        ({**PUBLICATION, "row_filter": True}, "the source is a standby. Remove the option, or make the primary"),
        ({"row_filter": True}, "the source is a standby. Remove the option, or make the primary"),
    ],
)
def test_what_a_standby_cannot_do_is_refused(
    pair: tuple[EmbeddedPostgres, EmbeddedPostgres], sql: Sql, options: dict[str, Any], message: str
) -> None:
    with feed_of(pair[1].uri(), "t", options=options) as feed, pytest.raises(ConfigError, match=message):
        feed.rangefeed.check()


def test_a_standby_without_feedback_is_refused_because_its_slot_would_be_lost() -> None:
    with (
        started_primary() as primary,
        standby_of(primary, feedback=False) as standby,
        logging_transactions(primary),
        feed_of(standby.uri(), "t", options=PUBLICATION) as feed,
        psycopg.connect(primary.uri(), autocommit=True) as sql,
        psycopg.connect(standby.uri(), autocommit=True) as admin,
    ):
        with pytest.raises(ConfigError, match="Run ALTER SYSTEM SET hot_standby_feedback = on;"):
            feed.rangefeed.check()
        admin.execute("ALTER SYSTEM SET hot_standby_feedback = on")
        admin.execute("SELECT pg_reload_conf()")
        eventually("feedback", lambda: shown(admin) == "on")
        feed.start()
        feed.catch_up()
        admin.execute("ALTER SYSTEM SET hot_standby_feedback = off")
        admin.execute("SELECT pg_reload_conf()")
        eventually("no feedback", lambda: shown(admin) == "off")
        sql.execute("CREATE TABLE u (id int)")
        sql.execute("DROP TABLE u")

        def lost() -> bool:
            sql.execute("VACUUM pg_class")
            query = "SELECT FROM pg_replication_slots WHERE invalidation_reason = 'rows_removed'"
            return admin.execute(query).rowcount == 1

        eventually("the loss of the slot", lost)
        with pytest.raises(HistoryLostError, match=r"\(rows_removed\).*Set hot_standby_feedback = on"):
            feed.catch_up()


def shown(connection: Sql) -> object:
    row = connection.execute("SELECT current_setting('hot_standby_feedback')").fetchone()
    return row and row[0]


@contextmanager
def started_primary(binaries: Path | None = None) -> Iterator[EmbeddedPostgres]:
    """A server with a table of 100 rows and its publication, whose commits wait until a standby has replayed them."""
    settings = {"fsync": "off", "synchronous_commit": "remote_apply"}
    with CopiedPostgres(settings=settings, binaries=binaries) as primary:
        with psycopg.connect(primary.uri(), autocommit=True) as sql:
            create(sql)
        yield primary


@pytest.mark.parametrize("kept", [False, True], ids=["by SQL", "with a session"])
def test_a_changefeed_continues_when_its_standby_is_promoted(*, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        started_primary() as primary,
        standby_of(primary) as standby,
        feed_of(standby.uri(), "t", options=PUBLICATION) as feed,
    ):
        with logging_transactions(primary):
            feed.start()
            feed.catch_up()
        with (
            closing(psycopg.connect(primary.uri(), autocommit=True)) as sql,
            closing(psycopg.connect(primary.uri())) as writer,
        ):
            if kept:
                keep_session(feed, writer, sql, monkeypatch)
            sql.execute("INSERT INTO t VALUES (200, 200)")
            primary.kill()
        eventually("the end of replication", lambda: "receives no log from its primary" in notice(feed))
        with psycopg.connect(standby.uri(), autocommit=True) as sql:
            sql.execute("SELECT pg_promote()")
            sql.execute("UPDATE t SET v = 0 WHERE id <= 5")
            feed.catch_up()
            assert feed.rows("public.t") == table_of(sql, "SELECT * FROM t")
            feed.restart()
            sql.execute("DELETE FROM t WHERE id <= 5")
            feed.catch_up()
            assert feed.rows("public.t") == table_of(sql, "SELECT * FROM t")


@pytest.mark.slow
@pytest.mark.parametrize("major", [15, 16, 17])
def test_a_standby_can_be_read_since_version_16(major: int) -> None:
    try:
        binaries = binaries_of(major)
    except UnavailableError as error:
        pytest.skip(str(error))
    with (
        started_primary(binaries) as primary,
        standby_of(primary) as standby,
        feed_of(standby.uri(), "t", options=PUBLICATION) as feed,
        psycopg.connect(primary.uri(), autocommit=True) as sql,
    ):
        if major < 16:
            with pytest.raises(ConfigError, match="logical decoding on a standby needs 16 or newer"):
                feed.rangefeed.check()
            return
        with logging_transactions(primary):
            feed.start()
            feed.catch_up()
            sql.execute("ALTER TABLE t ADD COLUMN c int DEFAULT 7")
            sql.execute("UPDATE t SET v = -v WHERE id <= 10")
            feed.catch_up()
            feed.restart()
            sql.execute("DELETE FROM t WHERE id = 20")
            feed.catch_up()
            assert feed.rows("public.t") == table_of(sql, "SELECT * FROM t")
