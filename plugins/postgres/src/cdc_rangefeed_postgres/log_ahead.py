"""Reads the log of large steps before tasks ask for it: the server decodes one while another is delivered and saved."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core import RetryableRangefeedError, Slice
from cdc_rangefeed_postgres.client_errors import ClientError, text_of
from cdc_rangefeed_postgres.connection import Server, give_any_bytes
from cdc_rangefeed_postgres.log_slice import WORTH_BYTES, LogSlice
from cdc_rangefeed_postgres.log_socket import POSSIBLE, SliceSocket
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.slot_copy import SlotCopy

log = logging.getLogger(__name__)

_AHEAD_BYTES = 96 << 20
"""The session stops reading while so much waits. What the server has decoded beyond that waits there, on its disk."""
_SAY_S = 10.0
"""A reader gives up when it hears nothing for three times as long."""
_JOIN_LIMIT_S = 5.0
_PAUSE_S = 60.0
_BEGIN = ord("B")
_NO_OFFSETS, _NO_DATA = memoryview(bytes(4)).cast("i"), memoryview(b"")


class LogAhead:
    """The session of one planner that reads ahead, while steps are large. *clock* is monotonic.

    As long as the log has a whole step after the one that is planned, the planner knows where that one will end. A
    slice that the session reads names it, and its reader takes it from there. Every other slice, and every slice that
    the session does not give, is read from a copy of the slot that its reader makes: so is each that is repeated.
    """

    def __init__(
        self, server: Server, slot: Slot, options: PostgresOptions, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._server = server
        self._slot = slot
        self._options = options
        self._clock = clock
        self._socket: SliceSocket[_Session] | None = None
        self._named: set[int] = set()
        """Where the slices begin that have named the session."""
        self._open_at = float("-inf") if POSSIBLE else float("inf")

    def named(self, slice_: Slice, *, following: int | None) -> Slice:
        """Return a slice of the log with the name of the session, if that reads it.

        It then also reads the slice after it, which ends at *following* unless that is None. Called for each step, and
        again for one that is planned again.
        """
        payload: LogSlice = slice_.payload
        if self._socket is not None:
            if not self._socket.session.continues(payload):
                if self._socket.session.failed:
                    self._open_at = self._clock() + _PAUSE_S
                self.close()
            elif len(self._named) - self._socket.requests > 1:
                log.info("replication slot %s: cannot read ahead, because tasks run on other hosts", self._slot.name)
                self._open_at = float("inf")
                self.close()
        if self._socket is None:
            large = payload.end - payload.start >= WORTH_BYTES and not payload.slot.temporary
            if not large or following is None or self._clock() < self._open_at:
                return slice_
            try:
                self._socket, self._named = SliceSocket(_Session(self._server, payload, self._options)), set()
            except (OSError, RuntimeError) as error:  # the last one is that of too many threads
                log.info("replication slot %s: cannot read ahead: %s", self._slot.name, error)
                self._open_at = self._clock() + _PAUSE_S
                return slice_
        if following is not None:
            self._socket.session.want(payload.end, following)
        self._named.add(payload.start)
        return replace(slice_, payload=replace(payload, session=self._socket.name))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


@dataclass(slots=True)
class _Messages:
    """Consecutive messages of the log, as an Arrow array has them."""

    offsets: memoryview = _NO_OFFSETS
    data: memoryview = _NO_DATA

    @classmethod
    def of(cls, array: pa.Array) -> _Messages:
        array = array.cast(pa.binary())
        _, offsets, data = array.buffers()
        bounds = memoryview(offsets).cast("B")[array.offset * 4 : (array.offset + len(array) + 1) * 4].cast("i")
        if bounds[0]:
            raise RetryableRangefeedError(
                "the PostgreSQL client returned a slice of an Arrow array instead of a whole one"
            )
        return cls(bounds, _NO_DATA if data is None else memoryview(data).cast("B")[: bounds[-1]])

    @property
    def size(self) -> int:
        return len(self.data) + self.offsets.nbytes

    def last_begun(self) -> int:
        """Return the final LSN of the last transaction that begins here, 0 when none does."""
        starts = np.frombuffer(self.offsets, np.int32)[:-1]
        begins = starts[np.frombuffer(self.data, np.uint8)[starts] == _BEGIN]
        return int.from_bytes(self.data[begins[-1] + 1 : begins[-1] + 9], "big") if len(begins) else 0


@dataclass(slots=True)
class _Range:
    """The log of one slice, between these positions."""

    start: int
    end: int
    waiting: deque[_Messages] = field(default_factory=deque)
    complete: bool = False
    given: bool = False
    forgotten: bool = False
    """Whether its step is over."""


class _Session:
    """A copy of a slot that begins with slice *first*, and a thread that reads one range after the other from it.

    At most two of them: one that is being delivered, and the next.
    """

    def __init__(self, server: Server, first: LogSlice, options: PostgresOptions) -> None:
        self.failed = False
        self._server, self._first, self._options = server, first, options
        self._changed = threading.Condition()
        self._closing = False
        self._bytes = 0
        self._ranges = deque([_Range(first.start, first.end)])
        self._connection: Any = None
        self._open = threading.Lock()
        """Held while the connection is used by another thread than that which closes it, and while it is given up."""
        self._thread = threading.Thread(target=self._run, name="cdc-log-ahead", daemon=True)
        self._thread.start()

    def continues(self, payload: LogSlice) -> bool:
        """Return whether the session reads this slice, and forget those before it."""
        with self._changed:
            while self._ranges and self._ranges[0].start < payload.start:
                done = self._ranges.popleft()
                done.forgotten = True
                self._bytes -= sum(messages.size for messages in done.waiting)
                done.waiting.clear()
            self._changed.notify_all()
            return (
                not self.failed
                and bool(self._ranges)
                and (self._ranges[0].start, self._ranges[0].end) == (payload.start, payload.end)
                and (payload.binary, payload.endpoint) == (self._first.binary, self._first.endpoint)
            )

    def want(self, start: int, end: int) -> None:
        """Read this range too."""
        with self._changed:
            if self._ranges[-1].end == start:
                self._ranges.append(_Range(start, end))
                self._changed.notify_all()

    def slice(self, start: int, end: int) -> Iterator[_Messages]:
        """Yield nothing, then the messages of a range, once; nothing again while the server takes long.

        Raises: RetryableRangefeedError when not all of them are there.
        """
        with self._changed:
            found = next((each for each in self._ranges if (each.start, each.end) == (start, end)), None)
            if found is None or found.given:
                raise RetryableRangefeedError("the session does not have the slice")
            found.given = True
        yield _Messages()
        while (messages := self._take(found)) is not None:
            yield messages

    def close(self) -> None:
        """End the thread, and with it the connection and the copy."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        deadline = time.monotonic() + _JOIN_LIMIT_S
        self._thread.join(0.1)
        while self._thread.is_alive() and time.monotonic() < deadline:
            with self._open, suppress(*ClientError):
                if self._connection is not None:
                    self._connection.adbc_connection.cancel()
            self._thread.join(0.1)

    def _take(self, range_: _Range) -> _Messages | None:
        with self._changed:
            self._changed.wait_for(
                lambda: range_.waiting or range_.complete or range_.forgotten or self.failed or self._closing, _SAY_S
            )
            if range_.forgotten:
                raise RetryableRangefeedError("the step is over")
            if range_.waiting:
                messages = range_.waiting.popleft()
                self._bytes -= messages.size
                self._changed.notify_all()
                return messages
            if range_.complete:
                return None
            if self.failed or self._closing:
                raise RetryableRangefeedError("the session has ended")
            return _Messages()

    def _run(self) -> None:
        try:
            connection = self._server.connect_arrow("ahead")
            try:
                give_any_bytes(connection)
                with self._open:
                    self._connection = connection
                if not self._closing:
                    self._read(connection)
            finally:
                with self._open:
                    self._connection = None
                connection.close()
        except Exception as error:
            if not self._closing:
                text = self._server.mask(text_of(error)) if isinstance(error, ClientError) else error
                log.info("replication slot %s: cannot read ahead: %s", self._first.slot.name, text)
        finally:
            with self._changed:
                self.failed = True
                self._changed.notify_all()

    def _read(self, connection: Any) -> None:
        copy = SlotCopy.make(connection, self._first.slot, start=self._first.start)
        if copy is None or copy.begin > self._first.start:
            raise RetryableRangefeedError("the server cannot copy a slot that begins there")
        range_ = self._ranges[0]
        while not copy.is_failover():
            fetches = copy.fetches(
                range_.end,
                binary=self._first.binary,
                batch_bytes=self._options.fetch_size,
                whole=range_.start > self._first.start,  # its first row is not awaited yet
            )
            begun = 0
            with closing(fetches):  # before the connection is
                for fetch in fetches:
                    if len(fetch):
                        messages = _Messages.of(fetch)
                        begun = messages.last_begun() or begun
                        if not self._put(range_, messages):
                            return
            following = self._following(range_)
            if following is None:
                return
            if begun >= range_.end:  # the copy gives no transaction twice, and this one belongs to the next range
                raise RetryableRangefeedError("a transaction begins where the step ends")
            range_ = following
        raise RetryableRangefeedError("rows read from a failover slot wait for the standbys")

    def _put(self, range_: _Range, messages: _Messages) -> bool:
        """Return whether more is wanted, which may take a while."""
        with self._changed:
            if not range_.forgotten:
                range_.waiting.append(messages)
                self._bytes += messages.size
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._bytes < _AHEAD_BYTES or self._closing)
            return not self._closing

    def _following(self, range_: _Range) -> _Range | None:
        """Return the range after *range_*, which is complete, once it is wanted; None when the session is closed."""

        def found() -> _Range | None:
            return next((each for each in self._ranges if each.start == range_.end), None)

        with self._changed:
            range_.complete = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closing or found())
            return None if self._closing else found()
