"""What only the primary can do for a changefeed that reads a standby: publish tables, and log running transactions."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cdc_core import RetryableRangefeedError
from cdc_rangefeed_postgres.client_errors import ClientError, text_of
from cdc_rangefeed_postgres.connection import Connection, Server, set_lock_timeout
from cdc_rangefeed_postgres.running_transactions import log_running_transactions
from cdc_rangefeed_postgres.standby import is_standby

log = logging.getLogger(__name__)

_LOG_AGAIN_S = 0.25
_LOOK_AGAIN_S = 0.02


class Primary:
    """The primary of an endpoint, if there is one: mostly the source. Connects when it is needed."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def connect(self, role: str = "primary") -> Connection:
        """Return a connection to the source; to an endpoint when that one, and not the source, is the primary now.

        Raises: client errors of the source, not translated.
        """
        failure: BaseException | None = None
        found: Connection | None = None
        for endpoint in dict.fromkeys(("", *self._server.endpoints)):
            try:
                connection = self._server.connect_to(endpoint, role)
            except ClientError as error:
                failure = failure or error
                continue
            if not is_standby(connection):
                if found is not None:
                    found.close()
                return connection
            if endpoint:
                connection.close()
            else:
                found = connection
        if found is not None:
            return found
        assert failure is not None
        raise failure

    @contextmanager
    def publishing(self, connection: Connection, *, lock_timeout_s: float, wait_s: float) -> Iterator[Connection]:
        """Yield a connection on which the publication can be changed; after the block *connection* sees the changes.

        It is *connection* itself, unless this is to an endpoint that is a standby. Raises: client errors; those of
        `translated` when the primary cannot be reached; RetryableRangefeedError when the standby has not replayed the
        changes within *wait_s*.
        """
        if not self._server.used or not is_standby(connection):
            yield connection
            return
        primary = self._server.place_of("")
        with self._server.translated(f"connecting to the primary, {primary}, to change the publication"):
            publisher = self.connect()
        try:
            set_lock_timeout(publisher, lock_timeout_s)
            publisher.execute("SET synchronous_commit = local")
            yield publisher
            row = publisher.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        finally:
            publisher.close()
        assert row is not None
        self._wait_for_replay(connection, row[0], wait_s)

    @contextmanager
    def logging_transactions(self, connection: Connection) -> Iterator[None]:
        """Let the primary log its running transactions again and again, if *connection* is to a standby endpoint.

        The creation of a slot on a standby waits for that. Never fails: without the privilege, or while the primary
        cannot be reached, it waits as long as it takes until the primary does it by itself.
        """
        if not self._server.used or not is_standby(connection):
            yield
            return
        over = threading.Event()
        thread = threading.Thread(target=self._log_until, args=[over], name="cdc-primary", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(5.0)

    def log_transactions(self) -> None:
        """Let the primary log its running transactions once, in a thread, so that a slot's restart point can move.

        Only when an endpoint is used. Never fails.
        """
        if self._server.used:
            over = threading.Event()
            over.set()
            threading.Thread(target=self._log_until, args=[over], name="cdc-primary", daemon=True).start()

    def _log_until(self, over: threading.Event) -> None:
        try:
            connection = self.connect()
            try:
                while not is_standby(connection):
                    log_running_transactions(connection)
                    if over.wait(_LOG_AGAIN_S):
                        return
            finally:
                with suppress(*ClientError):
                    connection.close()
        except ClientError as error:
            log.debug("the primary did not log its transactions: %s", self._server.mask(text_of(error)))

    def _wait_for_replay(self, connection: Connection, lsn: str, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        query = "SELECT NOT pg_is_in_recovery() OR pg_last_wal_replay_lsn() >= %s::pg_lsn"
        while (row := connection.execute(query, [lsn]).fetchone()) is None or not row[0]:
            if time.monotonic() > deadline:
                raise RetryableRangefeedError(
                    f"endpoint {self._server.used} did not replay the primary's log up to {lsn} within {limit_s:g} s."
                    " Repair its replication, or remove the endpoint from option 'endpoints'"
                )
            time.sleep(_LOOK_AGAIN_S)
