"""The slot and the publication: creation, release, removal, and the errors when history is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres import slot_use, starting
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.history import PostgresHistory
from cdc_rangefeed_postgres.publication import Publication
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed
from cdc_rangefeed_postgres.running_transactions import log_running_transactions
from cdc_rangefeed_postgres.slot import Slot
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.documented_role import ROLE, documented
from cdc_testing.feeding import Feed, caught_up, feed_of, started
from cdc_testing.fixtures import fresh_database
from cdc_testing.postgres import Sql, table_of, value
from cdc_testing.runs import eventually

from cdc_core import ConfigError, HistoryLostError, RetryableRangefeedError, TerminalRangefeedError


@pytest.fixture(autouse=True)
def table(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    sql.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 100) g")


def slots(sql: Sql) -> list[str]:
    query = "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database() ORDER BY 1"
    return [row[0] for row in sql.execute(query)]


def publications(sql: Sql) -> list[str]:
    return [row[0] for row in sql.execute("SELECT pubname::text FROM pg_publication ORDER BY 1")]


def slot_of(feed: Feed) -> str:
    return f"cdc_test_{feed.context.feed_id}"


def test_a_start_without_progress_does_not_begin_beside_the_slot_of_an_earlier_one(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as lost, feed_of(database, "t") as anew:
        with pytest.raises(ConfigError) as refused:
            anew.start()
        text = str(refused.value)
        with pytest.raises(ConfigError, match=re.escape(text)):
            anew.rangefeed.check()
        for context in (replace(lost.context, saved=lost.saved), replace(anew.context, temporary=True)):
            with closing(PostgresRangefeed(context)) as another:
                another.check()
        assert text.startswith(f"replication slot {slot_of(lost)} retains the log for an earlier changefeed 'test'")
        drop = f"`cdc drop --orphans URI --only {slot_of(lost)}`"
        for remedy in ("name its store with --state or --store", drop, "use another name"):
            assert remedy in text
        assert slots(sql) == publications(sql) == [slot_of(lost)]
        lost.restart()  # the one with progress continues
        lost.close()
        sql.execute("SELECT pg_drop_replication_slot(%s)", [slot_of(lost)])
        with pytest.raises(ConfigError, match=rf"publication {slot_of(lost)} remains for an earlier changefeed"):
            anew.start()
        lost.rangefeed.drop(lost.saved)
        anew.start()
        assert slots(sql) == publications(sql) == [slot_of(anew)]


def test_other_names_and_other_databases_are_no_earlier_changefeed(
    database: str, postgres_server: EmbeddedPostgres
) -> None:
    with feed_of(database, "t", changefeed="a-b") as first, feed_of(database, "t", changefeed="a_b") as second:
        first.start()
        second.start()
        with fresh_database(postgres_server) as other:
            with psycopg.connect(other, autocommit=True) as connection:
                connection.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
            with feed_of(other, "t", changefeed="a-b") as elsewhere:
                elsewhere.start()
        with feed_of(database, "t", changefeed="a_b") as third, pytest.raises(ConfigError, match="changefeed 'a_b'"):
            third.start()


class CrashError(Exception):
    pass


def crash(*_: object, **__: object) -> Any:
    raise CrashError


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(lambda patch: patch.setattr(Publication, "create", crash), id="after the intent was saved"),
        pytest.param(lambda patch: patch.setattr(Slot, "create", crash), id="after the publication"),
        pytest.param(lambda patch: patch.setattr(starting, "first_states", crash), id="after the slot"),
    ],
)
def test_a_crash_during_the_start_leaves_no_orphan(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch, place: Callable[[pytest.MonkeyPatch], None]
) -> None:
    with feed_of(database, "t") as feed:
        with monkeypatch.context() as patch:
            place(patch)
            with pytest.raises(CrashError):
                feed.start()
        assert feed.saved == {"state": "creating", "slot": slot_of(feed)}
        feed.restart()
        assert slots(sql) == publications(sql) == [slot_of(feed)]
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n FROM t")


def test_a_timeout_of_the_slots_creation_names_the_transaction_and_leaves_no_slot(database: str, sql: Sql) -> None:
    with (
        feed_of(database, "t", options={"snapshot_wait": 3}) as feed,
        psycopg.connect(database, application_name="nightly") as other,
    ):
        other.execute("UPDATE t SET n = 0")
        pid = other.info.backend_pid
        with pytest.raises(
            RetryableRangefeedError,
            match=rf"not created within 3 s because write transactions are still open \(oldest: process {pid}, "
            r"\d+ s old, application 'nightly'\)\. End them, or wait",
        ):
            feed.start()
        assert slots(sql) == []
        other.rollback()
        feed.start()
        assert slots(sql) == [slot_of(feed)]


def test_a_dropped_slot_is_lost_history(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed:
        feed.close()
        found = PostgresRangefeed(replace(feed.context, saved=feed.saved))
        found.check()
        sql.execute("SELECT pg_drop_replication_slot(%s)", [slot_of(feed)])
        sql.execute("ALTER TABLE t RENAME TO lost")  # as on a server that was restored from a dump
        sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
        lost = rf"slot {slot_of(feed)} no longer exists: .* --all --new-slot"
        with pytest.raises(HistoryLostError, match=lost):
            found.check()
        with pytest.raises(HistoryLostError, match=lost):
            feed.restart()


def test_a_slot_dropped_during_an_attempt_is_lost_history(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed:
        sql.execute("SELECT pg_drop_replication_slot(%s)", [slot_of(feed)])
        sql.execute("INSERT INTO t VALUES (101)")
        with pytest.raises(HistoryLostError, match=rf"slot {slot_of(feed)} no longer exists"):
            feed.catch_up()


def test_a_slot_whose_log_was_deleted_or_that_was_invalidated_is_lost_history() -> None:
    settings = {"fsync": "off", "max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with CopiedPostgres(settings=settings) as server, psycopg.connect(server.uri(), autocommit=True) as sql:
        sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
        with started(server.uri(), "t") as feed:
            segment = value(sql, "SELECT pg_walfile_name(restart_lsn) FROM pg_replication_slots")
            sql.execute("SELECT pg_switch_wal()")
            (server.directory / "data" / "pg_wal" / segment).unlink()
            with pytest.raises(
                HistoryLostError, match=rf"its log was deleted.* WAL segment pg_wal/{segment} has already"
            ):
                feed.catch_up()
            feed.close()
            for _ in range(3):
                sql.execute("SELECT pg_switch_wal()")
                sql.execute("CREATE TABLE filler AS SELECT g FROM generate_series(1, 1000) g")
                sql.execute("DROP TABLE filler")
            sql.execute("CHECKPOINT")
            with pytest.raises(
                HistoryLostError, match=r"was invalidated \(wal_removed\).* Raise max_slot_wal_keep_size"
            ):
                feed.restart()


def test_an_idle_changefeed_keeps_its_slot_and_a_stopped_one_says_when_it_loses_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(slot_use, "_POLL_S", 0.1)
    settings = {"fsync": "off", "idle_replication_slot_timeout": "6s"}
    with CopiedPostgres(settings=settings) as server, psycopg.connect(server.uri(), autocommit=True) as sql:
        sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
        with feed_of(server.uri(), "t") as feed:

            def lost() -> bool:
                sql.execute("CHECKPOINT")
                query = "SELECT invalidation_reason FROM pg_replication_slots WHERE slot_name = %s"
                return sql.execute(query, [slot_of(feed)]).fetchone() != (None,)

            feed.start()
            assert (
                "waits for its destination for that long, or is paused or stopped for that long, loses its replication"
                " slot" in caplog.text
            )
            feed.catch_up()
            confirmed = sql.execute("SELECT confirmed_flush_lsn FROM pg_replication_slots").fetchone()
            uses: set[Any] = set()

            def used_for_longer_than_the_limit() -> bool:
                feed.plan()  # no step is carried out, as while the destination is out of reach
                assert not lost()
                uses.update(sql.execute("SELECT inactive_since FROM pg_replication_slots").fetchone() or ())
                return max(uses) - min(uses) > timedelta(seconds=7)

            eventually("the slot was used for longer than the limit", used_for_longer_than_the_limit, look_s=0.1)
            assert sql.execute("SELECT confirmed_flush_lsn FROM pg_replication_slots").fetchone() == confirmed
            feed.close()
            with closing(PostgresHistory(replace(feed.context, saved=feed.saved))) as stopped:

                def noticed() -> bool:
                    stopped.metrics()
                    return stopped.notice() is not None

                eventually("half of the time is over", noticed, look_s=0.1)
                expected = f"replication slot {slot_of(feed)} has not been used since"
                assert (stopped.notice() or "").startswith(expected)
            eventually("the slot is lost", lost, look_s=0.1)
            with pytest.raises(HistoryLostError, match=r"invalidated \(idle_timeout\).* Raise idle_replication_slot_"):
                feed.restart()


def test_a_slot_with_this_name_in_another_database_is_refused(database: str, postgres_server: EmbeddedPostgres) -> None:
    with started(database, "t") as feed:
        feed.close()
        slot = slot_of(feed)
        with psycopg.connect(postgres_server.uri(), autocommit=True) as elsewhere:
            elsewhere.execute("SELECT pg_drop_replication_slot(%s)", [slot])
            elsewhere.execute("SELECT pg_create_logical_replication_slot(%s, 'test_decoding', true)", [slot])
            with pytest.raises(HistoryLostError, match="does not belong to this changefeed: it uses test_decoding"):
                feed.restart()
            elsewhere.execute("SELECT pg_drop_replication_slot(%s)", [slot])


def test_connections_of_an_earlier_attempt_are_ended_at_the_start(database: str, sql: Sql) -> None:
    with feed_of(database, "t") as feed, started(database, "t", changefeed="other") as other:
        other.step()
        feed.start()
        feed.step()
        later = Feed(feed.context, feed.limit)
        later.saved = feed.saved
        try:
            later.start()
            names = {
                row[0].split("/")[-1]
                for row in sql.execute(
                    "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE %s",
                    [f"cdc/%/{feed.context.feed_id}/%"],
                )
            }
            assert names == {"driver"}
            assert other.step() is not None, "another changefeed's connections are left alone"
        finally:
            later.close()


def test_a_restart_point_that_lags_behind_is_moved(database: str, sql: Sql) -> None:
    sql.execute(f"GRANT EXECUTE ON FUNCTION pg_log_standby_snapshot() TO {ROLE}")
    with caught_up(database, "t") as feed:
        for _ in range(4):
            sql.execute("UPDATE t SET n = g FROM generate_series(1, 10000) g WHERE g % 100 = id % 100")
            sql.execute("CREATE TABLE filler AS SELECT repeat('x', 500) FROM generate_series(1, 10000) g")
            sql.execute("DROP TABLE filler")
            feed.catch_up()
        feed.catch_up()
        metrics = feed.history.metrics()
        assert metrics["retained_bytes"] < 8 << 20
        assert metrics["unconfirmed_bytes"] < 1 << 20
        assert metrics["snapshot_age_s"] == 0


def test_a_changefeed_releases_however_far_the_restart_point_lags(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed:
        for _ in range(2):
            sql.execute("CREATE TABLE filler AS SELECT repeat('x', 500) FROM generate_series(1, 20000) g")
            sql.execute("DROP TABLE filler")
            sql.execute("UPDATE t SET n = n + 1")
            feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT id, n FROM t")
        with psycopg.connect(documented(database), autocommit=True) as connection:
            assert not log_running_transactions(connection)
    assert log_running_transactions(sql)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("SET (publish = 'insert')", "does not publish update and delete and truncate"),
        ("SET (publish_via_partition_root = false)", "publishes changes to partitions under"),
        ("SET TABLE t WHERE (id > 1)", "the entry in publication .* was replaced"),
    ],
)
def test_an_own_publication_that_somebody_alters_is_terminal(
    database: str, sql: Sql, change: str, complaint: str
) -> None:
    with caught_up(database, "t") as feed:
        sql.execute(f"ALTER PUBLICATION {slot_of(feed)} {change}")
        with pytest.raises(TerminalRangefeedError, match=complaint):
            feed.catch_up()


@pytest.mark.parametrize("statement", ["ALTER PUBLICATION {} DROP TABLE u", "DROP PUBLICATION {}"])
def test_a_table_that_is_not_published_any_more_is_terminal(database: str, sql: Sql, statement: str) -> None:
    sql.execute("CREATE TABLE u (id int PRIMARY KEY)")
    with caught_up(database, "u") as feed:
        sql.execute(statement.format(slot_of(feed)))
        with pytest.raises(TerminalRangefeedError, match=r"table public\.u is no longer in publication"):
            feed.catch_up()


def test_a_reader_waits_for_a_slot_in_use(database: str, sql: Sql) -> None:
    with started(database, "t") as feed:
        feed.scan()
        sql.execute("INSERT INTO t SELECT g, g FROM generate_series(1000, 60000) g")
        slices = feed.slices()
        half_read = feed.reader.read(slices[0])
        next(half_read)
        half_read.close()  # type: ignore[attr-defined]  # it is a generator
        feed.catch_up()
        assert len(feed.rows("public.t")) == 100 + 59001


def test_lost_history_of_a_run_that_leaves_nothing_is_cured_by_another_start(sql: Sql) -> None:
    publication = Publication(name="p", given=False, own="p", changefeed="orders", nulls=False)
    slot = Slot(name="s", given=False, own="s", failover=False, publication=publication, feed_id="x")
    with pytest.raises(HistoryLostError, match="cdc rescan FILE NAME --all --new-slot"):
        slot.require(sql, needed=1)
    with pytest.raises(HistoryLostError, match=r"changes after 0/1 are lost\. Start again$"):
        replace(slot, temporary=True).require(sql, needed=1)
