"""A pool of connections that grows with the number of parallel requests and drops connections that stop answering."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpcore2

_MAX_CONCURRENT_STREAMS = 3
"""The number of this setting in RFC 9113."""
_MAX_STREAMS = 100
"""httpcore2 never has more requests on one HTTP/2 connection, whatever the endpoint allows."""
_HEADERS, _GOAWAY = 1, 7
"""Types of frames in RFC 9113. The payload of GOAWAY begins with the last stream and the error, 4 bytes each."""
_FRAME_HEAD_BYTES = 9
_PREFACE_BYTES = 24


class Connection:
    """A connection to the endpoint, or its successor after it was closed. Lives in one event loop."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool) -> None:
        self.pool = pool
        self.opened_at = time.monotonic()
        self.users = 0
        """Requests on the connection, and those that wait to learn its capacity."""
        self.capacity: int | None = None
        """How many requests it accepts at a time: 1 with HTTP/1.1; with HTTP/2 the endpoint decides."""
        self.capacity_known = asyncio.Event()
        self.connected = False
        self.usable = True
        self.ended = False
        """The endpoint has ended it gracefully."""
        self.released_at = 0.0

    def set_capacity(self, requests: int) -> None:
        """Set how many requests the connection accepts at a time."""
        self.capacity = requests
        self.capacity_known.set()

    async def trace(self, name: str, info: dict[str, Any]) -> None:
        """Learn the capacity from events of httpcore2. This is the extension `trace` of a request."""
        self.connected |= name.endswith(".send_request_headers.started")
        if name == "http11.send_request_headers.started":
            self.set_capacity(1)
        elif name == "http2.receive_remote_settings.complete":
            setting = info["return_value"].changed_settings.get(_MAX_CONCURRENT_STREAMS)
            if setting is not None and setting.new_value:
                self.set_capacity(min(setting.new_value, _MAX_STREAMS))
            elif self.capacity is None:
                self.set_capacity(1)  # httpcore2 assumes 1 where the endpoint sets no limit


class ConnectionPool:
    """Opens as many connections as needed, so that no request waits for the answer to another request.

    An HTTP/2 connection accepts as many requests at a time as the endpoint allows, for example 10. httpcore2 lets all
    others wait, and their time limit runs meanwhile. Requests that arrive before this number is known wait until the
    first request of the connection has learned it, which takes as long as connecting, and then choose again.

    When the peer of an HTTP/2 connection disappears without closing it, the connection looks open until TCP gives up
    after about 15 minutes, and accepts request after request. The client therefore retires a connection on which a
    request timed out.
    """

    def __init__(
        self,
        new_pool: Callable[[Callable[[], None]], httpcore2.AsyncConnectionPool],
        *,
        idle_s: float,
        max_age_s: float,
    ) -> None:
        """Use *new_pool* to make the pool of one connection, which calls its argument when the endpoint says goodbye.

        A connection is closed after *idle_s* without requests, and gets no more of them after *max_age_s*.
        """
        self._new_pool = new_pool
        self._idle_s = idle_s
        self._max_age_s = max_age_s
        self._expected_capacity = _MAX_STREAMS
        self._connections: set[Connection] = set()
        self._available: dict[Connection, None] = {}  # those with free capacity; the last one is used next

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[Connection]:
        """Yield a connection for one request, which must use its `trace` while its capacity is unknown."""
        connection = await self._acquire()
        try:
            yield connection
        finally:
            if connection.capacity is None:  # the request failed early: those that wait open connections of their own
                connection.set_capacity(1)
            self._expected_capacity = connection.capacity or 1
            await self._release(connection)

    def retire(self, connection: Connection) -> None:
        """Start no more requests on *connection*. It is closed when its last request has left it."""
        connection.usable = False
        self._update_available(connection)

    async def aclose(self) -> None:
        """Close all connections."""
        for connection in list(self._connections):
            await connection.pool.aclose()

    async def _acquire(self) -> Connection:
        while True:
            await self._close_idle()
            connection = next(reversed(self._available), None) or self._new_connection()
            connection.users += 1
            self._update_available(connection)
            if connection.users > 1:
                try:
                    await connection.capacity_known.wait()
                except asyncio.CancelledError:
                    await self._release(connection)
                    raise
                self._expected_capacity = connection.capacity or 1
            if connection.usable and connection.users <= (connection.capacity or 1):
                return connection
            await self._release(connection)

    async def _release(self, connection: Connection) -> None:
        connection.users -= 1
        connection.released_at = time.monotonic()
        connection.usable &= connection.released_at - connection.opened_at < self._max_age_s
        self._update_available(connection)
        if not connection.usable and not connection.users:
            await self._close(connection)

    def _new_connection(self) -> Connection:
        connection = Connection(self._new_pool(lambda: self._end(connection)))
        self._connections.add(connection)
        return connection

    def _end(self, connection: Connection) -> None:
        connection.ended = True
        self.retire(connection)

    def _update_available(self, connection: Connection) -> None:
        if connection.usable and connection.users < (connection.capacity or self._expected_capacity):
            self._available.setdefault(connection)
        else:
            self._available.pop(connection, None)

    async def _close_idle(self) -> None:
        """Close the least used connection if it was idle for long."""
        connection = next(iter(self._available), None)
        if connection is not None and not connection.users and time.monotonic() - connection.released_at > self._idle_s:
            connection.usable = False
            self._update_available(connection)
            await self._close(connection)

    async def _close(self, connection: Connection) -> None:
        self._connections.discard(connection)
        await connection.pool.aclose()


class TlsBackend(httpcore2.AnyIOBackend):
    """Opens TLS connections, closes the socket when the handshake is canceled, and lets HTTP/2 end gracefully.

    httpcore2 closes the socket when a handshake fails, but not when it is canceled from outside, for example by the
    time limit of the request. The socket would stay open until it is garbage collected.
    """

    def __init__(self, on_goodbye: Callable[[], None]) -> None:
        self._on_goodbye = on_goodbye

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        """Return a connection that waits for `start_tls`."""
        return _PlainStream(await super().connect_tcp(*args, **kwargs), self._on_goodbye)


class _PlainStream(httpcore2.AsyncNetworkStream):
    """A connection before its TLS handshake. It offers nothing else."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, on_goodbye: Callable[[], None]) -> None:
        self._stream = stream
        self._on_goodbye = on_goodbye

    async def start_tls(self, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        try:
            stream = await self._stream.start_tls(*args, **kwargs)
        except BaseException:
            await self._stream.aclose()
            raise
        is_http2 = stream.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        return Http2Stream(stream, self._on_goodbye) if is_http2 else stream


class Http2Stream(httpcore2.AsyncNetworkStream):
    """A connection that hides the frame GOAWAY from httpcore2 if it reports no error, and calls *on_goodbye* instead.

    Endpoints send it before they close a connection, for example nginx after 1,000 requests, and still answer the
    requests that they have. httpcore2 would give these up, and they would be sent twice. It is shown that the endpoint
    has refused the requests after the last one that it took.
    """

    def __init__(self, stream: httpcore2.AsyncNetworkStream, on_goodbye: Callable[[], None]) -> None:
        self._stream = stream
        self._on_goodbye = on_goodbye
        self._unread = b""
        self._passing_bytes = 0
        """How much of the present frame is still to be passed on."""
        self._newest_stream = 0
        self._last_taken: int | None = None
        """The last stream that the endpoint takes, after its goodbye."""
        self._late = b""
        """Refusals of requests that were sent after the goodbye."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while True:
            if self._late and not self._passing_bytes:
                shown, self._late = self._late, b""
                return shown
            data = await self._stream.read(max_bytes, timeout)
            shown = self._without_goodbye(data)
            if shown or not data:
                return shown

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._note_streams(buffer)
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def _note_streams(self, frames: bytes) -> None:
        """Note the newest stream in *frames*, which are whole, after the preface of the connection."""
        start = _PREFACE_BYTES if frames.startswith(b"PRI") else 0
        while start < len(frames):
            if frames[start + 3] == _HEADERS:
                self._newest_stream = int.from_bytes(frames[start + 5 : start + 9])
                if self._last_taken is not None and self._newest_stream > self._last_taken:
                    self._late += _refusal(self._newest_stream)
            start += _FRAME_HEAD_BYTES + int.from_bytes(frames[start : start + 3])

    def _without_goodbye(self, data: bytes) -> bytes:
        """Return what httpcore2 may see of *data*, and of what was read before."""
        unread, shown = self._unread + data, []
        while self._passing_bytes or len(unread) >= _FRAME_HEAD_BYTES:
            if not self._passing_bytes:
                frame_bytes = _FRAME_HEAD_BYTES + int.from_bytes(unread[:3])
                if unread[3] == _GOAWAY:
                    if len(unread) < frame_bytes:
                        break
                    if not any(unread[_FRAME_HEAD_BYTES + 4 : _FRAME_HEAD_BYTES + 8]):
                        self._on_goodbye()
                        self._last_taken = int.from_bytes(unread[_FRAME_HEAD_BYTES : _FRAME_HEAD_BYTES + 4])
                        refused = range((self._last_taken + 1) | 1, self._newest_stream + 1, 2)  # clients' are odd
                        shown += [_refusal(stream) for stream in refused]
                        unread = unread[frame_bytes:]
                        continue
                self._passing_bytes = frame_bytes
            shown.append(unread[: self._passing_bytes])
            unread = unread[self._passing_bytes :]
            self._passing_bytes -= len(shown[-1])
            if not unread:
                break
        self._unread = unread
        return b"".join(shown)


def _refusal(stream: int) -> bytes:
    """Return the frames WINDOW_UPDATE, with 1 byte, and RST_STREAM, with the error REFUSED_STREAM.

    Without the first, httpcore2 would wait until it may send the rest of a large body, and never see the second.
    A body that waits for the window of the whole connection still does, until the endpoint enlarges that or closes.
    """
    number = stream.to_bytes(4)
    return b"\0\0\4\x08\0%b\0\0\0\1\0\0\4\3\0%b\0\0\0\7" % (number, number)
