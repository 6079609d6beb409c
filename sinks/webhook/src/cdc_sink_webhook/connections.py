"""Connections that stay open, and what is done about those that no longer answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpcore2

__all__ = ["Connections", "TlsNetwork"]


class Connections:
    """A pool, and another one in its place when it is not to be trusted any more.

    All requests may share one connection of HTTP/2. When the other side is gone without a word, that one stays open as
    far as anybody here can tell, and takes request after request, for a quarter of an hour: until TCP gives up.
    """

    def __init__(self, new_pool: Callable[[], httpcore2.AsyncConnectionPool]) -> None:
        self._new_pool = new_pool
        self._pool = new_pool()
        self._users: dict[httpcore2.AsyncConnectionPool, int] = {self._pool: 0}

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[httpcore2.AsyncConnectionPool]:
        """Yield the pool to make one request with. One that was replaced is closed when the last request left it."""
        pool = self._pool
        self._users[pool] += 1
        try:
            yield pool
        finally:
            self._users[pool] -= 1
            if pool is not self._pool and not self._users[pool]:
                del self._users[pool]
                await pool.aclose()

    def mistrust(self, pool: httpcore2.AsyncConnectionPool) -> None:
        """Make requests by new connections from now on, if they were to be made by *pool*."""
        if pool is self._pool:
            self._pool = self._new_pool()
            self._users[self._pool] = 0

    async def aclose(self) -> None:
        """Close all connections."""
        for pool in list(self._users):
            await pool.aclose()


class TlsNetwork(httpcore2.AnyIOBackend):
    """Makes connections that are to be encrypted, and leaves none behind that was given up before it was.

    httpcore2 closes one whose handshake fails, but not one whose handshake is broken off from outside, as by a limit on
    the time of the whole request: its socket would stay open until the interpreter collects it.
    """

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        """Return a connection that waits for `start_tls`."""
        return _Unencrypted(await super().connect_tcp(*args, **kwargs))


class _Unencrypted(httpcore2.AsyncNetworkStream):
    """A connection of which no more is asked than to be encrypted."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream

    async def start_tls(self, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        try:
            return await self._stream.start_tls(*args, **kwargs)
        except BaseException:
            await self._stream.aclose()
            raise
