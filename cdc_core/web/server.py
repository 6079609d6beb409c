"""The server: an application of endpoints, and a thread that serves it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from cdc_core.errors import ConfigError
from cdc_core.web.access.access import Access
from cdc_core.web.access.guard import MAX_HEAD, Guard
from cdc_core.web.address import Address
from cdc_core.web.connection import Connections, GuardedConnection, watched
from cdc_core.web.endpoint import Endpoint
from cdc_core.web.requests import Deployment
from cdc_core.web.routes import http_error, routes


class TrustedProxies:
    """Passes requests to *app* with the client and scheme that one of *trusted* says, if it is the peer.

    The peer stays the client where a proxy says no IP address: such a text may be the client's own.
    """

    def __init__(self, app: ASGIApp, trusted: Sequence[str]) -> None:
        self._app = app
        self._believing = ProxyHeadersMiddleware(self._with_address, list(trusted))  # type: ignore[arg-type]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("client") is not None:
            host, port = scope["client"]
            # how a socket for both kinds of addresses shows those of IPv4
            scope["client"] = scope["peer"] = (host.removeprefix("::ffff:") if "." in host else host, port)
        await self._believing(scope, receive, send)  # type: ignore[arg-type]

    async def _with_address(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            ipaddress.ip_address(scope["client"][0])
        except (TypeError, ValueError):
            scope["client"] = scope.get("peer")
        await self._app(scope, receive, send)


log = logging.getLogger(__name__)

_KEEP_ALIVE_S = 30
"""How long a connection may wait for its next request."""
_LAST_ANSWERS_S = 3
"""How long a server that is closed lets its answers take. Then it hangs up."""
_LEFT_AFTER_S = 7.0
"""How long it waits after that for handlers that hang."""
_BACKLOG = 128


def application(endpoints: Iterable[Endpoint], deployment: Deployment, access: Access) -> Starlette:
    """Return the application that answers at *endpoints* whom *access* allows it."""
    proxies = list(access.settings.trusted_proxy)
    app = Starlette(
        routes=routes(endpoints, allow=access.allow),
        middleware=[
            *([Middleware(TrustedProxies, trusted=proxies)] if proxies else []),
            Middleware(Guard, access=access),
        ],
        exception_handlers={HTTPException: http_error},
    )
    app.router.redirect_slashes = False
    app.state.deployment = deployment
    app.state.access = access
    return app


class WebServer(AbstractContextManager["WebServer"]):
    """Serves *app* until it is closed, in a thread. Raises: ConfigError when it cannot listen where *access* says."""

    def __init__(self, app: Starlette, access: Access) -> None:
        self._socket = _listening(access.address)
        self.address = Address(access.address.host, self._socket.getsockname()[1])
        self._scheme = access.origins.scheme
        self._connections = Connections(access)
        config = uvicorn.Config(
            watched(app),
            loop="asyncio",
            http=partial(GuardedConnection, access=access, connections=self._connections),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=MAX_HEAD,
            timeout_keep_alive=_KEEP_ALIVE_S,
            backlog=_BACKLOG,
        )
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # warnings are about what clients do wrong
        config.load()  # what is wrong with it is raised here, not in the thread
        self._server = uvicorn.Server(config)
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._connections.log_error)
        self._thread = threading.Thread(target=self._serve, name="web", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host = self.address
        if host.is_everywhere:
            host = Address("localhost", host.port)
        return f"{self._scheme}://{host}"

    @property
    def connections(self) -> int:
        """How many there are now."""
        return len(self._connections)

    def close(self) -> None:
        """Stop listening. Return when no further request is answered, or only some whose handlers hang."""
        self._server.should_exit = True
        self._thread.join(_LAST_ANSWERS_S)
        if self._thread.is_alive():
            with suppress(RuntimeError):  # the loop has been closed meanwhile
                self._loop.call_soon_threadsafe(self._connections.abort)
            self._thread.join(_LEFT_AFTER_S)
        if self._thread.is_alive():
            log.warning("closed the server at %s while a request was still running", self.url)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))

    def __exit__(self, *_: object) -> None:
        self.close()


def _listening(address: Address) -> socket.socket:
    try:
        family, _, _, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        both: dict[str, Any] = {"dualstack_ipv6": True} if address.host == "::" and socket.has_dualstack_ipv6() else {}
        found = socket.create_server(where[:2], family=family, backlog=_BACKLOG, **both)
        # connections inherit it; without it each answer on a connection that is kept would take 40 ms longer
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found
    except OSError as error:
        why = error.strerror if isinstance(error, socket.gaierror) or not error.errno else os.strerror(error.errno)
        raise ConfigError(
            f"--listen {address}: this process cannot listen there: {why}; choose another address with"
            " --listen=HOST:PORT"
        ) from error
