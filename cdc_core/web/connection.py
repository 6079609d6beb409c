"""The connections of a server, of which none may be slow or stuck: uvicorn has no limits of this kind."""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from cdc_core.open_files import REMEDY, open_files_limit, with_open_files_limit
from cdc_core.web.access.access import Access

log = logging.getLogger(__name__)

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of `accept` after which asyncio tries again each second."""


class Connections:
    """The open connections with their clients. Those that are being encrypted count too. Used in the event loop."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._clients: dict[asyncio.Transport, str] = {}
        self._accepts = True
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

    def __len__(self) -> int:
        return len(self._clients)

    def add(self, transport: asyncio.Transport) -> bool:
        """Count a connection; return False for one too many."""
        self._accepts = True
        client = self._access.client_of(transport.get_extra_info("peername"))
        of_client = sum(each == client for each in self._clients.values())
        if len(self._clients) >= self._most or of_client >= max(1, self._most // 2):
            return False
        self._clients[transport] = client
        return True

    def remove(self, transport: asyncio.Transport) -> None:
        """Count a connection no more; do nothing if it was not counted."""
        self._clients.pop(transport, None)

    def abort(self) -> None:
        """End all connections at once, and with them what still waits for answers, such as streams."""
        for transport in list(self._clients):
            transport.abort()

    def log_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of the event loop; one line while there is no file or memory for a connection."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            loop.default_exception_handler(context)
        elif self._accepts:
            self._accepts = False
            log.warning("no connection could be accepted: %s", with_open_files_limit(str(error), error))


_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: 21\r\n\r\ntoo many connections\n"
)
_TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain\r\ncontent-length: 38\r\nconnection: close\r\n\r\n"
    b"the head of the request took too long\n"
)


class GuardedConnection(asyncio.Protocol):
    """Has uvicorn serve HTTP/1.1, over TLS if *access* says so, to an application that is `watched`.

    The connection is cut off when a handshake or a head takes longer than a request may, or an answer is not read for
    so long. `request.state.certificate` is the client's, as `getpeercert` has it.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        access: Access,
        connections: Connections,
    ) -> None:
        self._config, self._server_state, self._app_state = config, server_state, app_state
        self._handshakes: set[Any] = server_state.connections  # uvicorn calls `shutdown` of each when the server closes
        self._access, self._connections = access, connections
        self._within_s = access.settings.request_timeout
        self._loop = asyncio.get_running_loop()
        self._http: H11Protocol | None = None
        self._early = b""
        self._head: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._answering: set[object] = set()
        self._ended = asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._accepted = self._transport = transport
        tls = self._access.tls
        if not self._connections.add(transport):
            if tls is None:
                transport.write(_FULL)
            transport.close()
        elif tls is None:
            self._serve(None)
        else:
            transport.pause_reading()  # what has come belongs to the handshake
            self._handshakes.add(self)
            self._encrypting = self._loop.create_task(self._encrypt(tls.context()))

    def data_received(self, data: bytes) -> None:
        if self._http is None:  # a client may send its request with the end of the handshake
            self._early += data
            return
        try:
            self._http.data_received(data)
        except h11.LocalProtocolError:  # what is not HTTP has come after the answer began: no other can follow
            self._transport.close()
        if not self._answering and self._head is None:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self._accepted)
        self._has_head()
        self.resume_writing()
        if self._http is not None:
            self._http.connection_lost(exc)
        self._ended.set()

    def pause_writing(self) -> None:
        if self._http is not None:
            self._http.pause_writing()
        self._reading = self._loop.call_later(self._within_s, self._transport.abort)

    def resume_writing(self) -> None:
        if self._http is not None:
            self._http.resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def shutdown(self) -> None:
        """End a handshake, as the server is being closed. After it uvicorn has its own protocol do that."""
        self._accepted.abort()

    async def answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Have *app* answer a request whose head has come. Drop what it sends when the connection is being closed."""

        async def send_while_open(message: Message) -> None:
            if not self._transport.is_closing():
                await send(message)
                if message["type"] == "http.response.body" and not message.get("more_body", False):
                    self._answering.discard(request)  # the next head may come before *app* returns

        request = object()
        self._has_head()
        self._answering.add(request)
        try:
            await app(scope, receive, send_while_open)
            if self._transport.is_closing():  # uvicorn misses an answer until it knows
                await self._ended.wait()
        finally:
            self._answering.discard(request)

    async def _encrypt(self, context: ssl.SSLContext) -> None:
        encrypted: asyncio.Transport | None = None
        try:
            encrypted = await self._loop.start_tls(
                self._accepted,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=self._within_s,
                ssl_shutdown_timeout=self._within_s,
            )
        except OSError as error:  # also of TLS, and of a handshake that takes too long
            log.debug("a connection ended before its first request: %s", error)
        finally:
            self._handshakes.discard(self)
        if encrypted is None:  # also when `shutdown` or `Connections.abort` came first
            self._connections.remove(self._accepted)
            return
        self._transport = encrypted
        self._serve(encrypted.get_extra_info("ssl_object").getpeercert() or None)

    def _serve(self, certificate: object) -> None:
        state = {**self._app_state, "certificate": certificate, "connection": self}
        self._http = H11Protocol(self._config, self._server_state, state)
        self._http.connection_made(self._transport)
        self._await_head()
        if self._early:
            self.data_received(self._early)

    def _await_head(self) -> None:
        """Let time run while the client has to send a head. Between requests uvicorn closes idle connections."""
        # a head that has come in this round of the loop is passed on in the next one, before `_give_up`
        self._head = self._loop.call_later(self._within_s, self._loop.call_soon, self._give_up)

    def _has_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _give_up(self) -> None:
        if self._head is not None and not self._transport.is_closing():
            self._transport.write(_TOO_SLOW)
            self._transport.close()


def watched(app: ASGIApp) -> ASGIApp:
    """Return *app* as a `GuardedConnection` can have uvicorn call it."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        connection: GuardedConnection = scope["state"].pop("connection")
        await connection.answer(app, scope, receive, send)

    return answer
