"""When a decoding session is kept: while an open transaction would make each step decode much of the log again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cdc_core import Slice
from cdc_rangefeed_postgres.client_errors import ClientError, text_of
from cdc_rangefeed_postgres.connection import Connection, Server
from cdc_rangefeed_postgres.log_session import LogSession
from cdc_rangefeed_postgres.log_slice import LogSlice
from cdc_rangefeed_postgres.log_socket import POSSIBLE, SliceSocket
from cdc_rangefeed_postgres.slot import Slot

log = logging.getLogger(__name__)

MIN_AGAIN_BYTES = 64 << 20
_MAX_SLICE_BYTES = 32 << 20
"""Of more log, a copy costs the server less, and the next part is decoded while one is read."""
_POLL_INTERVAL_S = 1.0
_CALM_BYTES = 4 << 20
"""Much more log than this comes sooner by SQL: a walsender takes almost three times as long for each change."""
_START_LIMIT_S = 600.0
"""How long a session may decode what is behind the open transaction."""
_BEHIND_LIMIT_S = 30.0
"""A session that was at the end of the log and has nothing to give for so long does not keep up."""
_PAUSE_S = 30.0
"""A session decodes from the restart point once, so another one does not follow at once."""
_LONG_PAUSE_S = 300.0
_MAX_UNASKED = 3
"""After so many slices that no reader has asked for, they run where they cannot."""
_AGAIN = """
SELECT pg_wal_lsn_diff(s.confirmed_flush_lsn, s.restart_lsn)::bigint, s.restart_lsn::text,
       coalesce(to_jsonb(s) ->> 'failover' = 'true', false), pg_wal_lsn_diff(s.restart_lsn, c.restart_lsn)::bigint
FROM pg_replication_slots s LEFT JOIN pg_replication_slots c ON c.slot_name = %s WHERE s.slot_name = %s
"""


class KeptLog:
    """The decoding session of one planner, and how much log the server decodes again without it.

    Slices that the session has name it, and their readers take them from it. Every other slice, and every slice that it
    does not give, is read by SQL. *clock* is monotonic.
    """

    def __init__(self, server: Server, slot: Slot, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._slot = slot
        self._clock = clock
        self.again_bytes = 0
        self._poll_at = float("-inf")
        self._open_at = float("-inf")
        self._restart = ""
        self._binary: bool | None = None
        """How the last slice was to be read."""
        self._socket: SliceSocket[LogSession] | None = None
        self._is_here = False
        """Whether the server of the planner has the session, too."""
        self._named = 0
        """How many slices have named the session."""
        self._began_at = 0.0
        self._unserved_since: float | None = None
        """When the first of the slices was planned that the session should have had since it had one."""
        self._told = False

    def poll(self, connection: Connection, start: int, end: int | None) -> None:
        """Open or end the session: before each step. Asks the server once a second at most.

        The step begins at *start* and ends at *end*, None when more of the log follows.
        """
        now = self._clock()
        if now < self._poll_at:
            return
        self._poll_at = now + _POLL_INTERVAL_S
        socket, session = self._socket, self._session
        row: Any = connection.execute(_AGAIN, [session.copy if session else "", self._slot.name]).fetchone()
        again, restart, failover, behind = row or (0, "", False, None)
        self.again_bytes = again or 0
        calm = end is not None and end - start < _CALM_BYTES
        held, self._restart = calm and restart == self._restart, restart if calm else ""
        much = self.again_bytes >= MIN_AGAIN_BYTES
        if socket is not None and session is not None:
            if not much:
                self._end("the open transaction has ended")
            elif session.ended is not None or behind is None:
                self._end(session.ended or "it is on another server")
            elif failover:
                self._end("rows read from a failover slot wait for the standbys")
            elif behind >= max(MIN_AGAIN_BYTES, self.again_bytes):  # its copy holds back as much of the log
                self._end("the transactions that were open when it began have ended")
            elif self._named - socket.requests >= _MAX_UNASKED:
                self._end("no task has read from it: they run on other hosts", pause_s=_LONG_PAUSE_S)
            elif not self._named and now - self._began_at > _START_LIMIT_S:
                self._end("it does not reach the end of the log", pause_s=_LONG_PAUSE_S)
            elif self._unserved_since is not None and now - self._unserved_since > _BEHIND_LIMIT_S:
                self._end("it does not keep up")
        elif much and held and not failover and POSSIBLE and now >= self._open_at:
            self._begin()
        self._is_here = self._session is not None and behind is not None

    def serves(self, start: int, end: int) -> bool:
        """Return whether a step between these positions costs the server nothing for the log before it."""
        session = self._session
        return (
            session is not None
            and self._is_here
            and session.binary == self._binary
            and end - start < _MAX_SLICE_BYTES
            and session.has(start, nearly_to=end - _CALM_BYTES)
        )

    def named(self, slice_: Slice) -> Slice:
        """Return a slice of the log with the name of the session, if that has it."""
        payload: LogSlice = slice_.payload
        self._binary = payload.binary
        if self._socket is None:
            return slice_
        self._socket.session.forget(payload.start)
        if payload.end <= payload.start:
            return slice_
        if not self.serves(payload.start, payload.end):
            if self._named and self._unserved_since is None:
                self._unserved_since = self._clock()
            return slice_
        self._unserved_since = None
        self._named += 1
        return replace(slice_, payload=replace(payload, session=self._socket.name))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def _session(self) -> LogSession | None:
        return None if self._socket is None else self._socket.session

    def _begin(self) -> None:
        if self._binary is None:
            return
        try:
            self._socket = SliceSocket(LogSession(self._server, self._slot, binary=self._binary))
        except (*ClientError, OSError, RuntimeError) as error:  # the last one is that of too many threads
            self._open_at = self._clock() + _PAUSE_S
            if not self._told:
                self._told = True
                log.warning(
                    "replication slot %s: each step decodes the log again from the start of the open transaction,"
                    " because no connection to the server can be kept open: %s",
                    self._slot.name,
                    self._server.mask(text_of(error)),
                )
            return
        self._named, self._began_at, self._unserved_since = 0, self._clock(), None
        log.info("replication slot %s: reading the log through a kept connection", self._slot.name)

    def _end(self, reason: str, *, pause_s: float | None = None) -> None:
        log.info("replication slot %s: closed the kept connection: %s", self._slot.name, reason)
        self._open_at = self._clock() + (_PAUSE_S if pause_s is None else pause_s)
        self.close()
