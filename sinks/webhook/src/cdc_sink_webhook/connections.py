"""Connections that stay open, as many as requests need, and what is done about those that no longer answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpcore2

__all__ = ["Connections", "Line", "TlsNetwork"]

_MAX_CONCURRENT_STREAMS = 3
"""The number of that setting in RFC 9113."""
_MOST_STREAMS = 100
"""httpcore2 has no more requests on a connection of HTTP/2, whatever the endpoint allows."""


class Line:
    """A connection to the endpoint, and the next one when that one ends. Lives in one event loop."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool) -> None:
        self.pool = pool
        self.users = 0
        """Requests on the line, and those that wait to learn whether they may be."""
        self.streams: int | None = None
        """How many requests it takes at a time: 1 with HTTP/1.1, what the endpoint says with HTTP/2."""
        self.known = asyncio.Event()
        self.trusted = True
        self.left_at = 0.0

    def learn(self, streams: int) -> None:
        """Know how many requests the line takes at a time."""
        self.streams = streams
        self.known.set()

    async def trace(self, name: str, info: dict[str, Any]) -> None:
        """Learn from what httpcore2 does, as the extension `trace` of a request."""
        if name == "http11.send_request_headers.started":
            self.learn(1)
        elif name == "http2.receive_remote_settings.complete":
            setting = info["return_value"].changed_settings.get(_MAX_CONCURRENT_STREAMS)
            if setting is not None and setting.new_value:
                self.learn(min(setting.new_value, _MOST_STREAMS))
            elif self.streams is None:
                self.learn(1)  # where an endpoint sets no limit httpcore2 sets this one


class Connections:
    """Lines to the endpoint, so many that no request waits for the answer to another.

    A connection of HTTP/2 takes as many requests at a time as the endpoint says, perhaps 10, and httpcore2 has all
    others wait, while the time that they may take goes by. Who comes while nobody knows that number yet waits for the
    first request of the line to learn it, which takes as long as connecting does, and then looks for another line.

    When the other side of a connection of HTTP/2 is gone without a word, it stays open as far as anybody here can tell,
    and takes request after request, for a quarter of an hour: until TCP gives up. Such a line is to be mistrusted.
    """

    def __init__(self, new_pool: Callable[[], httpcore2.AsyncConnectionPool], *, idle_s: float) -> None:
        """Take what makes the pool of a line, and after what time an idle line is closed."""
        self._new_pool = new_pool
        self._idle_s = idle_s
        self._expected = _MOST_STREAMS
        self._lines: set[Line] = set()
        self._roomy: dict[Line, None] = {}  # those that take more requests, the one to be used next at the end

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[Line]:
        """Yield a line to make one request by, which must have its `trace` unless all is `known`."""
        line = await self._join()
        try:
            yield line
        finally:
            if line.streams is None:  # so whoever waits for that finds out by a connection of his own
                line.learn(1)
            self._expected = line.streams or 1
            await self._leave(line)

    def mistrust(self, line: Line) -> None:
        """Begin no more requests by *line*. It is closed when the last one has left it."""
        line.trusted = False
        self._sort(line)

    async def aclose(self) -> None:
        """Close all connections."""
        for line in list(self._lines):
            await line.pool.aclose()

    async def _join(self) -> Line:
        while True:
            await self._close_idle()
            line = next(reversed(self._roomy), None) or self._new_line()
            line.users += 1
            self._sort(line)
            if line.users > 1:
                try:
                    await line.known.wait()
                except asyncio.CancelledError:
                    await self._leave(line)
                    raise
                self._expected = line.streams or 1
            if line.trusted and line.users <= (line.streams or 1):
                return line
            await self._leave(line)

    async def _leave(self, line: Line) -> None:
        line.users -= 1
        line.left_at = time.monotonic()
        self._sort(line)
        if not line.trusted and not line.users:
            await self._close(line)

    def _new_line(self) -> Line:
        line = Line(self._new_pool())
        self._lines.add(line)
        return line

    def _sort(self, line: Line) -> None:
        """Note whether *line* takes more requests."""
        if line.trusted and line.users < (line.streams or self._expected):
            self._roomy.setdefault(line)
        else:
            self._roomy.pop(line, None)

    async def _close_idle(self) -> None:
        """Close the line that was used least, if that was long ago."""
        line = next(iter(self._roomy), None)
        if line is not None and not line.users and time.monotonic() - line.left_at > self._idle_s:
            line.trusted = False
            self._sort(line)
            await self._close(line)

    async def _close(self, line: Line) -> None:
        self._lines.discard(line)
        await line.pool.aclose()


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
