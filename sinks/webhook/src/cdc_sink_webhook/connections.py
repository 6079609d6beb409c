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


class Connection:
    """A connection to the endpoint, or its successor after it was closed. Lives in one event loop."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool) -> None:
        self.pool = pool
        self.users = 0
        """Requests on the connection, and those that wait to learn its capacity."""
        self.capacity: int | None = None
        """How many requests it accepts at a time: 1 with HTTP/1.1; with HTTP/2 the endpoint decides."""
        self.capacity_known = asyncio.Event()
        self.usable = True
        self.released_at = 0.0

    def set_capacity(self, requests: int) -> None:
        """Set how many requests the connection accepts at a time."""
        self.capacity = requests
        self.capacity_known.set()

    async def trace(self, name: str, info: dict[str, Any]) -> None:
        """Learn the capacity from events of httpcore2. This is the extension `trace` of a request."""
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

    def __init__(self, new_pool: Callable[[], httpcore2.AsyncConnectionPool], *, idle_s: float) -> None:
        """Use *new_pool* to make the pool of one connection. A connection is closed after *idle_s* without requests."""
        self._new_pool = new_pool
        self._idle_s = idle_s
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
        self._update_available(connection)
        if not connection.usable and not connection.users:
            await self._close(connection)

    def _new_connection(self) -> Connection:
        connection = Connection(self._new_pool())
        self._connections.add(connection)
        return connection

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
    """Opens TLS connections and closes the socket when the handshake is canceled.

    httpcore2 closes the socket when a handshake fails, but not when it is canceled from outside, for example by the
    time limit of the request. The socket would stay open until it is garbage collected.
    """

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        """Return a connection that waits for `start_tls`."""
        return _PlainStream(await super().connect_tcp(*args, **kwargs))


class _PlainStream(httpcore2.AsyncNetworkStream):
    """A connection before its TLS handshake. It offers nothing else."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream

    async def start_tls(self, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        try:
            return await self._stream.start_tls(*args, **kwargs)
        except BaseException:
            await self._stream.aclose()
            raise
