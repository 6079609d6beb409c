"""A feed behind an open transaction, which keeps a decoding session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from cdc_rangefeed_postgres.log_session import LogSession
from cdc_rangefeed_postgres.lsn import parse_lsn
from cdc_testing.feeding import Feed, caught_up
from cdc_testing.log_slices import create_tables
from cdc_testing.postgres import Sql
from cdc_testing.runs import eventually

from cdc_core import Slice

KB, MB = 1 << 10, 1 << 20
SESSIONS = "SELECT pid, sent_lsn - '0/0', flush_lsn FROM pg_stat_replication WHERE application_name LIKE '%/session'"
SOON = {"MIN_AGAIN_BYTES": 256 * KB, "_POLL_INTERVAL_S": 0.0, "_PAUSE_S": 0.0, "_CALM_BYTES": 256 * MB}
"""With these settings of `kept_log` a session is kept behind little log, and one that ended is followed by another."""


@dataclass
class Kept:
    """A feed behind an open transaction of `writer`, which has a session."""

    feed: Feed
    writer: psycopg.Connection[Any]
    sql: Sql
    probes: int = 0

    @property
    def session(self) -> LogSession:
        session = self.feed.planner._kept._session
        assert session is not None
        return session

    def insert(self, first: int, count: int = 10, text: str = "x") -> None:
        self.sql.execute(
            "INSERT INTO t SELECT g, 0, %s FROM generate_series(%s::int, %s) g", [text, first, first + count - 1]
        )

    def slice(self) -> Slice:
        (slice_,) = self.feed.slices()
        assert slice_.payload.session
        return slice_

    def probe(self) -> None:
        """Deliver one more row."""
        self.probes -= 1
        self.insert(self.probes, 1)
        self.feed.catch_up()

    def keep(self) -> None:
        """Return when the session has come to the end of the log."""

        def stands() -> bool:
            self.probe()
            return self.feed.planner._kept.serves(lsn_of(self.feed), lsn_of(self.feed) + 1)

        eventually("the session to come to the end of the log", stands)


def lsn_of(feed: Feed) -> int:
    return parse_lsn(feed.token["lsn"])


def hold(writer: psycopg.Connection[Any], sql: Sql) -> None:
    """Open a transaction, and write log behind it."""
    writer.execute("INSERT INTO t VALUES (0, 0, 'open')")
    sql.execute("CREATE TABLE IF NOT EXISTS filler (v text)")
    sql.execute("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 3000)")


@contextmanager
def behind(database: str, sql: Sql, **options: Any) -> Iterator[Kept]:
    create_tables(sql)
    options = {"fetch_size": 64 * KB} | options
    with (
        caught_up(database, "t", "u", options=options, bytes_=256 * MB) as feed,
        closing(psycopg.connect(database)) as writer,
    ):
        hold(writer, sql)
        kept = Kept(feed, writer, sql)
        kept.keep()
        yield kept
