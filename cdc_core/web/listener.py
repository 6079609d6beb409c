"""Accepts connections, as many as there may be."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable

from cdc_core.open_files import REMEDY, open_files_limit, with_open_files_limit
from cdc_core.web.access.access import Access

__all__ = ["Listener", "Made"]

log = logging.getLogger(__name__)

Made = Callable[[Callable[[], None]], asyncio.Protocol]
"""Makes what serves a connection, given what to call when it has ended."""

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: 21\r\n\r\ntoo many connections\n"
)
_AFTER_ERROR_S = 0.1


class Listener:
    """Accepts connections at *listening* until it is closed. Those that are being encrypted count too."""

    def __init__(self, listening: socket.socket, access: Access, made: Made) -> None:
        self._socket, self._access, self._made = listening, access, made
        self._connections: dict[object, str] = {}
        self._of_client: Counter[str] = Counter()
        self._starting: set[asyncio.Task[None]] = set()
        self._most, limit = access.settings.max_connections, open_files_limit()
        if limit is not None and limit // 2 < self._most:  # the others are for what answers them
            self._most = max(1, limit // 2)
            log.warning(
                "the server accepts %d connections at a time, not %d, because this process may open %d files; %s",
                self._most,
                access.settings.max_connections,
                limit,
                REMEDY,
            )
        listening.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def __len__(self) -> int:
        """The number of connections."""
        return len(self._connections)

    def close(self) -> None:
        """Accept nothing more."""
        self._accepting.cancel()
        for task in self._starting:
            task.cancel()
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        accepts = True
        while True:
            try:
                connection, peer = await loop.sock_accept(self._socket)
            except OSError as error:  # the process has no file descriptor left, or the client has gone
                level = logging.WARNING if error.errno == errno.EMFILE and accepts else logging.DEBUG
                accepts = False
                log.log(level, "no connection could be accepted: %s", with_open_files_limit(str(error), error))
                await asyncio.sleep(_AFTER_ERROR_S)
                continue
            accepts = True
            client = self._access.client_of(peer)
            if self._is_full(client):
                self._refuse(connection)
                continue
            task = loop.create_task(self._begin(connection, self._counted(client)))
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    def _is_full(self, client: str) -> bool:
        return len(self._connections) >= self._most or self._of_client[client] >= max(1, self._most // 2)

    def _refuse(self, connection: socket.socket) -> None:
        try:
            if self._access.tls is None:
                connection.send(_FULL)
        except OSError:
            pass
        finally:
            connection.close()

    def _counted(self, client: str) -> Callable[[], None]:
        """Count a connection of *client*, and return what is to be called, once or more, when it has ended."""
        key = object()
        self._connections[key] = client
        self._of_client[client] += 1

        def end() -> None:
            if self._connections.pop(key, None) is not None:
                self._of_client[client] -= 1
                if not self._of_client[client]:
                    del self._of_client[client]

        return end

    async def _begin(self, connection: socket.socket, end: Callable[[], None]) -> None:
        tls = self._access.tls
        within_s = self._access.settings.request_timeout
        try:
            # asyncio does not do this, and each answer on a connection that is kept would take 40 ms longer
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            loop = asyncio.get_running_loop()
            if tls is None:
                await loop.connect_accepted_socket(lambda: self._made(end), connection)
            else:
                await loop.connect_accepted_socket(
                    lambda: self._made(end),
                    connection,
                    ssl=tls.context(),
                    ssl_handshake_timeout=within_s,
                    ssl_shutdown_timeout=within_s,
                )
        except (OSError, ssl.SSLError, TimeoutError) as error:
            log.debug("a connection ended before its first request: %s", error)
            connection.close()
            end()
        except asyncio.CancelledError:
            connection.close()
            end()
            raise
