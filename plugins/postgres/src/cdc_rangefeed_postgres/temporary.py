"""What a run that leaves nothing behind has on the server: a temporary slot, and a publication that ends with it.

The slot belongs to one connection and ends with it. PostgreSQL has no temporary publications. So this connection also
holds an advisory lock, and another one runs a block on the server that waits for this lock and then drops the
publication. Whatever becomes of this process, the server ends the first connection, and the block drops the
publication within about a second. Only a server that is killed itself keeps it: the next such run drops it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import ClassVar

import psycopg
from psycopg import sql

from cdc_core import HistoryLostError, RetryableRangefeedError
from cdc_rangefeed_postgres.client_errors import ClientError, sqlstate
from cdc_rangefeed_postgres.connection import Connection, Server
from cdc_rangefeed_postgres.names import TEMPORARY, copy_name
from cdc_rangefeed_postgres.primary import Primary
from cdc_rangefeed_postgres.remedies import START_AGAIN
from cdc_rangefeed_postgres.slot import Slot

log = logging.getLogger(__name__)

_NO_COPY = ("53400", "53300")
_LEFT = r"""
SELECT p.pubname::text FROM pg_publication p
WHERE p.pubname ~ '^cdc_[a-z0-9_]*_[0-9a-f]{12}$'
  AND obj_description(p.oid, 'pg_publication') ~ '^changefeed \S+ temporary$'
"""
_DROP_SLOT = """
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
WHERE slot_name = %s AND active_pid = pg_backend_pid()
"""
# Each turn is a transaction of its own, so that the server can remove old row versions meanwhile.
_UNDERTAKER = """
DO $undertaker$
BEGIN
    LOOP
        IF pg_try_advisory_lock({lock}) THEN
            EXECUTE {drop};
            EXIT;
        END IF;
        COMMIT;
        PERFORM pg_sleep(0.5);
    END LOOP;
END
$undertaker$
"""


class TemporaryObjects:
    """The temporary slot of one run, and its publication unless that existed before. Used by one thread.

    The parts of a rangefeed find it by `of`: all of them are in one process.
    """

    _held: ClassVar[dict[str, TemporaryObjects]] = {}
    """By the name of the slot, which is random."""

    def __init__(self, server: Server, slot: Slot, primary: Primary) -> None:
        self._slot = slot
        self._primary = primary
        self._owner = server.connect(TEMPORARY)
        self._guard: Connection | None = None
        self._undertaker: Connection | None = None
        self._held[slot.name] = self
        try:
            if not slot.publication.given:
                self._guard = primary.connect(TEMPORARY) if server.used else self._owner
                self._undertaker = primary.connect(TEMPORARY)
                self._keep_watch(self._guard, self._undertaker)
        except BaseException:
            self.close()
            raise

    @classmethod
    def find(cls, slot: Slot) -> TemporaryObjects | None:
        """Return what was created for *slot* in this process, None if it was not, or was closed."""
        return cls._held.get(slot.name)

    @classmethod
    def of(cls, slot: Slot) -> TemporaryObjects:
        """Return what was created for *slot* in this process. Raises: HistoryLostError when it is there no longer."""
        found = cls.find(slot)
        if found is None or not found.is_alive:
            raise HistoryLostError(
                f"the connection that held the temporary replication slot {slot.name} was lost, together with the"
                f" changes that had not been read yet. {START_AGAIN}"
            )
        return found

    def create_slot(self, *, limit_s: float) -> int:
        """Create the slot, or copy the one that existed before; return where it begins. Raises: as `create`."""
        slot = self._slot
        if slot.origin is None:
            return slot.create(self._owner, limit_s=limit_s, temporary=True)
        self._owner.execute("SELECT pg_copy_logical_replication_slot(%s, %s, true)", [slot.origin, slot.name])
        state = slot.state(self._owner)
        assert state is not None
        return state.confirmed

    @property
    def is_alive(self) -> bool:
        """Whether the server still has the connection. Asks it."""
        with suppress(*ClientError):
            self._owner.execute("SELECT 1")
            return True
        return False

    @property
    def owner(self) -> Connection:
        """The connection that alone can advance the slot."""
        return self._owner

    def close(self) -> None:
        """Remove all of it. May be called twice."""
        self._held.pop(self._slot.name, None)
        with suppress(*ClientError):  # the server would do it a moment after the connection has ended
            self._owner.execute(_DROP_SLOT, [self._slot.name])
        publication = self._slot.publication
        if self._undertaker is not None:
            with suppress(*ClientError):
                self._undertaker.cancel_safe(timeout=5.0)
            with suppress(*ClientError):
                self._undertaker.close()
        if self._guard is not None and not publication.given:
            try:
                publication.drop(self._guard)
            except ClientError:  # the connection is lost
                self._drop_again()
        for connection in (self._guard, self._owner):
            if connection is not None:
                with suppress(*ClientError):
                    connection.close()

    def _drop_again(self) -> None:
        try:
            with self._primary.connect(TEMPORARY) as connection:
                self._slot.publication.drop(connection)
        except ClientError as error:
            log.warning("publication %s was not dropped: %s", self._slot.publication.own, type(error).__name__)

    def _keep_watch(self, guard: Connection, undertaker: Connection) -> None:
        """Let the server drop the publication, which is not there yet, when the connection *guard* ends."""
        lock = _lock_of(self._slot.publication.own)
        guard.execute("SELECT pg_advisory_lock(%s)", [lock])
        for (name,) in guard.execute(_LEFT).fetchall():
            _drop_if_left(guard, name)
        drop = f"DROP PUBLICATION IF EXISTS {sql.Identifier(self._slot.publication.own).as_string(undertaker)}"
        text = _UNDERTAKER.format(lock=lock, drop=sql.Literal(drop).as_string(undertaker))
        # Otherwise it would end with this process, too early.
        undertaker.execute("SET client_connection_check_interval = 0")
        undertaker.pgconn.send_query(text.encode())
        while undertaker.pgconn.flush():
            pass


def _drop_if_left(connection: Connection, name: str) -> None:
    """Drop publication *name* if the run that created it is over. Leaves those of other roles."""
    lock = _lock_of(name)
    row = connection.execute("SELECT pg_try_advisory_lock(%s)", [lock]).fetchone()
    if row is None or not row[0]:
        return
    try:
        with suppress(psycopg.errors.InsufficientPrivilege):
            connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))
            log.info("dropped publication %s, which an earlier run left behind", name)
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", [lock])


@contextmanager
def readable(connection: Connection, slot: Slot) -> Iterator[Slot]:
    """Yield what *connection* can read in place of *slot*: the slot itself, or of a temporary one a copy.

    An error inside the block ends the copy.
    """
    if not slot.temporary:
        yield slot
        return
    copy = replace(slot, name=copy_name(slot.name))
    try:
        connection.execute("SELECT pg_copy_logical_replication_slot(%s, %s, true)", [slot.name, copy.name])
    except ClientError as error:
        refuse_without_copy(slot, error)
        raise
    yield copy
    connection.execute("SELECT pg_drop_replication_slot(%s)", [copy.name])


def refuse_without_copy(slot: Slot, error: BaseException) -> None:
    """Raise a RetryableRangefeedError when *error* says that the server has no room for a copy of *slot*."""
    if sqlstate(error) in _NO_COPY:
        raise RetryableRangefeedError(
            f"temporary replication slot {slot.name}: the server has no free replication slot for reading it. Raise"
            " max_replication_slots, or drop unused slots"
        ) from None


def _lock_of(name: str) -> int:
    """Return the key of the advisory lock that says that the run with publication *name* is alive."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
