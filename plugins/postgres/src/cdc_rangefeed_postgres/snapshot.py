"""Snapshots for the rounds of the initial scan, each exported by the creation of a temporary slot."""

from __future__ import annotations

import logging
import secrets
import select
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg

from cdc_rangefeed_postgres.client_errors import ClientError, sqlstate, text_of
from cdc_rangefeed_postgres.connection import Connection, Server
from cdc_rangefeed_postgres.lsn import parse_lsn
from cdc_rangefeed_postgres.primary import Primary
from cdc_rangefeed_postgres.slot import PLUGIN
from cdc_rangefeed_postgres.slot_creation import canceled_after, why_waiting

log = logging.getLogger(__name__)

CLOCK_US = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_FULL = ("53400", "53300")
_CANCELED = "57014"


@dataclass(slots=True, kw_only=True)
class ExportedSnapshot:
    """A snapshot. It exists until its connection ends or runs another statement.

    It sees exactly the transactions with `final_lsn < lsn`, all of which were committed before `clock_us`.
    """

    id: str
    lsn: int
    clock_us: int
    since: float
    """When it was requested, by time.monotonic()."""
    connection: Connection

    @property
    def alive(self) -> bool:
        """Whether the server still has it, as far as this can be known without using the connection."""
        if self.connection.closed:
            return False
        connection = self.connection.pgconn
        events = select.poll()  # select.select() fails in a process with more than 1,024 open files
        events.register(connection.socket, select.POLLIN)
        # An idle server sends a message only when a setting changed or when it ends the connection. After the second
        # one, the end of the stream follows.
        while events.poll(0):
            try:
                connection.consume_input()
            except psycopg.OperationalError:
                return False
            if connection.status != psycopg.pq.ConnStatus.OK:
                return False
        return True

    def close(self) -> None:
        with suppress(*ClientError):
            self.connection.close()


class SnapshotMaker:
    """Takes one snapshot at a time in a thread, because the server first waits for all open write transactions."""

    def __init__(self, server: Server, slot_prefix: str, *, limit_s: float) -> None:
        self._server = server
        self._slot_prefix = slot_prefix
        self._limit_s = limit_s
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._made: ExportedSnapshot | None = None
        self._failure: BaseException | None = None
        self._abandoned = False
        self.full = False
        """Whether the last request failed because the server had no free slot or connection."""

    @property
    def waiting(self) -> bool:
        """Whether a snapshot was requested and not fetched yet."""
        return self._thread is not None

    def request(self) -> None:
        """Start to take a snapshot, unless one is being taken."""
        if self._thread is None:
            self._made = self._failure = None
            self._abandoned = self.full = False
            self._thread = threading.Thread(target=self._make, name="cdc-snapshot", daemon=True)
            self._thread.start()

    def fetch(self, wait_s: float) -> ExportedSnapshot | None:
        """Return the requested snapshot, or None when it does not come within *wait_s*.

        Also None when the server had no free slot or connection, or when open transactions took too long; then request
        another one.
        Raises: any other failure, as `translated` does.
        """
        if self._thread is None:
            return None
        self._thread.join(wait_s)
        if self._thread.is_alive():
            return None
        self._thread = None
        failure, self._failure = self._failure, None
        if failure is None:
            made, self._made = self._made, None
            return made
        if sqlstate(failure) == _CANCELED:
            return None
        if sqlstate(failure) in _FULL:
            self.full = True
            log.warning(
                "scan: no snapshot: %s; raise max_connections, max_replication_slots or max_wal_senders, or the role's"
                " CONNECTION LIMIT",
                self._server.mask(text_of(failure)),
            )
            return None
        with self._server.translated("taking a snapshot for a scan"):
            raise failure

    def close(self) -> None:
        """Cancel the request and release the snapshot that nobody fetched."""
        self._abandoned = True
        connection = self._connection
        if connection is not None and self._thread is not None:
            with suppress(*ClientError):
                connection.cancel_safe(timeout=1.0)
        if self._thread is not None:
            self._thread.join(5.0)
            self._thread = None
        if self._made is not None:
            self._made.close()
            self._made = None

    def _make(self) -> None:
        clock: Connection | None = None
        try:
            clock = self._server.connect("clock")
            self._connection = connection = self._server.connect("snapshot", replication=True)
            name = f"{self._slot_prefix}_{secrets.token_hex(4)}"
            since = time.monotonic()
            try:
                logging_transactions = Primary(self._server).logging_transactions(clock)
                with logging_transactions, canceled_after(connection, self._limit_s):
                    # Every version accepts the form without parentheses; 14 knows no other.
                    row: Any = connection.execute(
                        f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL {PLUGIN} EXPORT_SNAPSHOT"
                    ).fetchone()
            except ClientError as error:
                if sqlstate(error) == _CANCELED and not self._abandoned:
                    reason, remedy = why_waiting(clock)
                    log.warning(
                        "scan: no snapshot within %g s because %s; following the log until then. %s",
                        self._limit_s,
                        reason,
                        remedy,
                    )
                raise
            moment: Any = clock.execute(CLOCK_US).fetchone()
            self._made = ExportedSnapshot(
                id=row[2], lsn=parse_lsn(row[1]), clock_us=moment[0], since=since, connection=connection
            )
        except BaseException as error:
            self._failure = error
            if self._connection is not None:
                with suppress(*ClientError):
                    self._connection.close()
        finally:
            self._connection = None
            if clock is not None:
                with suppress(*ClientError):
                    clock.close()
