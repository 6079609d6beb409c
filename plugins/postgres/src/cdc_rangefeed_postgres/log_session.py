"""A decoding session that is kept: it follows the end of the log, and holds what steps have not read yet.

Each SQL call on a slot decodes again from the slot's restart point, and an open transaction keeps that point where it
is. A walsender decodes each record once.
"""

from __future__ import annotations

import os
import select
import struct
import threading
from array import array
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg
from psycopg import pq

from cdc_core import RetryableRangefeedError
from cdc_rangefeed_postgres.client_errors import ClientError, text_of
from cdc_rangefeed_postgres.connection import ANY_BYTES, DATABASE_ENCODING, Connection, Server
from cdc_rangefeed_postgres.lsn import parse_lsn
from cdc_rangefeed_postgres.names import copy_name
from cdc_rangefeed_postgres.slot import Slot

_PIECE_BYTES = 256 << 10
_PIECE_MORE_BYTES = 1 << 10
_AHEAD_BYTES = 32 << 20
"""The session stops reading while so much waits: the server waits then."""
_KEPT_BYTES = 32 << 20
"""How much of what was given is kept, to be given again."""
_FULL_LIMIT_S = 30.0
"""A server that shuts down waits for a walsender whose client does not read."""
_TIMEOUT = "SET wal_sender_timeout = '2min'"
"""In this time the session answers the server, also after it was full."""
_SILENCE_S = 1.0
_WAIT_LIMIT_S = 20.0
_JOIN_LIMIT_S = 5.0
_DATA, _KEEPALIVE = ord("w"), ord("k")
_BEGIN, _COMMIT, _RELATION = ord("B"), ord("C"), ord("R")
_HEADER_BYTES = 25
_STATUS = struct.Struct(">cqqqqB")


@dataclass(slots=True)
class Piece:
    """Consecutive messages, as an Arrow array has them."""

    first: int = 0
    """The final LSN of the first transaction, of which the beginning may be in the piece before."""
    last: int = 0
    offsets: array[int] = field(default_factory=lambda: array("i", [0]))
    data: bytearray = field(default_factory=bytearray)
    relations: dict[int, bytes] = field(default_factory=dict)
    """The last Relation message of each table."""

    @property
    def size(self) -> int:
        """About how much memory it takes."""
        return len(self.data) + self.offsets.itemsize * len(self.offsets) + _PIECE_MORE_BYTES

    def add(self, message: bytes | memoryview) -> None:
        self.data += message
        self.offsets.append(len(self.data))


class LogSession:
    """A replication connection on a temporary copy of *slot*, and a thread that reads it.

    The constructor raises client errors, not translated. Afterwards `ended` says why the session gives nothing more;
    the caller then closes it. It never confirms anything to the server, so it does not count as a synchronous standby
    where synchronous_standby_names is '*'. The copy keeps holding the log that the slot held at the start: end the
    session when the open transaction has ended.
    """

    def __init__(self, server: Server, slot: Slot, *, binary: bool) -> None:
        self.binary = binary
        self.copy = copy_name(slot.name)
        self.ended: str | None = None
        self._mask = server.mask
        self._changed = threading.Condition()
        self._closing = False
        self._pieces: deque[Piece] = deque()
        self._number = 0
        """Of the first of the pieces; the numbers of those that follow are consecutive."""
        self._unread = 0
        """The number of the first piece that was not given yet."""
        self._ahead_bytes = self._kept_bytes = 0
        self._floor = 0
        """No slice begins before this."""
        self._known: dict[int, bytes] = {}
        """The Relation messages before the first piece: the server sends each of them once."""
        self._open = Piece()
        """What has come and is not among the pieces yet."""
        self._reached = 0
        """All transactions before this LSN are among the pieces, or were."""
        self._seen = 0
        """The like for what has come."""
        self._final = 0
        """The final LSN of the last transaction that has begun."""
        self._connection = server.connect("session", replication=True)
        try:
            self._base = self._start(slot)
            self._wake = os.eventfd(0)
            """Ends the wait for the server."""
            self._thread = threading.Thread(target=self._run, name="cdc-log-session", daemon=True)
            self._thread.start()
        except BaseException:
            self._connection.close()
            raise

    def has(self, start: int, *, nearly_to: int) -> bool:
        """Return whether the session has the transactions from *start* on, up to *nearly_to* at least, and lives."""
        with self._changed:
            return self.ended is None and self._base <= start and nearly_to <= self._reached

    def forget(self, before: int) -> None:
        """Forget the transactions before this LSN, also those to come: no earlier slice is asked for again."""
        with self._changed:
            self._floor = max(self._floor, before)
            self._drop_passed()
            self._changed.notify_all()

    def slice(self, start: int, end: int) -> Iterator[Piece]:
        """Yield the messages from at or before *start* to at or after *end*, after what announces their tables.

        The transactions are those with `start <= final_lsn < end`, and perhaps others around them. May be called by
        several threads at once, and again for the last slice unless that is large.

        Raises: RetryableRangefeedError when the session cannot give all of it.
        """
        with self._changed:
            if start < self._base:
                raise RetryableRangefeedError("the session is ahead of the slice")
            if self.ended is not None and self._reached < end:
                raise RetryableRangefeedError(self.ended)
            number, known = self._number, dict(self._known)
            for piece in self._pieces:
                if piece.last >= start:
                    break
                known |= piece.relations
                number += 1
        shapes = Piece()
        for message in known.values():
            shapes.add(message)
        yield shapes
        while (found := self._give(number, end)) is not None:
            yield found
            number += 1

    def close(self) -> None:
        """End the thread, and with it the connection and the copy."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        os.eventfd_write(self._wake, 1)
        self._thread.join(_JOIN_LIMIT_S)
        if not self._thread.is_alive():
            os.close(self._wake)

    def _start(self, slot: Slot) -> int:
        """Create the copy, let the server send what it has, and return where that begins."""
        connection = self._connection
        connection.execute(_TIMEOUT)
        row = connection.execute(
            f"SELECT lsn::text FROM pg_copy_logical_replication_slot('{slot.name}', '{self.copy}', true)"
        ).fetchone()
        assert row is not None
        if connection.execute(DATABASE_ENCODING).fetchone() == (ANY_BYTES,):
            connection.execute(f"SET client_encoding = '{ANY_BYTES}'")
        result = connection.pgconn.exec_(slot.stream(self.copy, binary=self.binary).encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise psycopg.OperationalError(pq.error_message(result))
        return parse_lsn(row[0])

    def _run(self) -> None:
        reason = "the session was closed"
        try:
            self._read(self._connection)
        except ClientError as error:
            reason = self._mask(text_of(error))
        except Exception as error:
            reason = str(error)
        finally:
            with suppress(*ClientError):
                self._connection.close()
            with self._changed:
                self.ended = reason
                self._changed.notify_all()

    def _read(self, connection: Connection) -> None:
        """Read messages until the session is closed."""
        pgconn = connection.pgconn
        poller = select.poll()
        poller.register(pgconn.socket, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        drained = False
        """Whether nothing was left to read, also within the TLS layer, of which the poller knows nothing."""
        while not self._closing:
            size, message = pgconn.get_copy_data(1)
            if size == 0:
                if drained:
                    self._publish()
                    if not poller.poll(_SILENCE_S * 1000):
                        self._answer(pgconn, self._seen, ask=True)
                drained = not drained
                pgconn.consume_input()
                continue
            drained = False
            if size > 0 and message[0] == _DATA:
                self._take(message[_HEADER_BYTES:])
                if len(self._open.data) >= _PIECE_BYTES:
                    self._publish()
            elif size > 0 and message[0] == _KEEPALIVE:
                position = int.from_bytes(message[1:9], "big")
                self._seen = max(self._seen, position)
                self._answer(pgconn, position)
                self._publish()
            elif size < 0:
                result = pgconn.get_result()
                raise psycopg.OperationalError("the server ended it" if result is None else pq.error_message(result))

    def _take(self, message: memoryview) -> None:
        kind = message[0]
        if kind == _BEGIN:
            self._final = int.from_bytes(message[1:9], "big")
            self._seen = max(self._seen, self._final)
        piece = self._open
        if not piece.data:
            piece.first = self._final
        piece.last = self._final
        piece.add(message)
        if kind == _RELATION:
            piece.relations[int.from_bytes(message[1:5], "big")] = bytes(message)
        elif kind == _COMMIT:
            self._seen = max(self._seen, self._final + 1)

    def _answer(self, pgconn: pq.abc.PGconn, position: int, *, ask: bool = False) -> None:
        """Say that everything before *position* has come, and *ask* how far the server has decoded."""
        pgconn.put_copy_data(_STATUS.pack(b"r", position, 0, 0, 0, ask))
        pgconn.flush()

    def _publish(self) -> None:
        """Let readers have the messages that have come. Wait while too many wait."""
        with self._changed:
            if self._open.data:
                self._pieces.append(self._open)
                self._ahead_bytes += self._open.size
                self._open = Piece()
                self._drop_passed()
            self._reached = max(self._reached, self._seen)
            self._changed.notify_all()
            if not self._changed.wait_for(
                lambda: self._ahead_bytes < _AHEAD_BYTES or self._closing, timeout=_FULL_LIMIT_S
            ):
                raise RetryableRangefeedError("no slice has read its contents")

    def _give(self, number: int, end: int) -> Piece | None:
        """Return the piece with this *number*; None when all that follows is at or after *end*."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.ended is not None or self._reached >= end or self._number + len(self._pieces) > number,
                timeout=_WAIT_LIMIT_S,
            )
            index = number - self._number
            if 0 <= index < len(self._pieces):
                piece = self._pieces[index]
                if piece.first >= end:
                    return None
                while self._unread <= number:
                    size = self._pieces[self._unread - self._number].size
                    self._ahead_bytes, self._kept_bytes = self._ahead_bytes - size, self._kept_bytes + size
                    self._unread += 1
                while self._kept_bytes > _KEPT_BYTES:
                    self._drop()
                self._changed.notify_all()
                return piece
            if index >= 0 and self._reached >= end:
                return None
            raise RetryableRangefeedError(self.ended or "the session does not have the whole slice")

    def _drop_passed(self) -> None:
        while self._pieces and self._pieces[0].last < self._floor:
            self._drop()

    def _drop(self) -> None:
        """Forget the first piece."""
        piece = self._pieces.popleft()
        if self._number < self._unread:
            self._kept_bytes -= piece.size
        else:
            self._ahead_bytes -= piece.size
        self._number += 1
        self._unread = max(self._unread, self._number)
        self._base = max(self._base, piece.last + 1)
        self._known |= piece.relations
