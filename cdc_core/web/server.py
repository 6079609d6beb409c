"""The server: an application of endpoints, and a thread that serves it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from cdc_core.errors import ConfigError
from cdc_core.web.access.access import Access
from cdc_core.web.access.guard import MAX_HEAD, Guard
from cdc_core.web.access.proxies import TrustedProxies
from cdc_core.web.address import Address
from cdc_core.web.connection import GuardedConnection
from cdc_core.web.deployment import Deployment
from cdc_core.web.endpoint import Endpoint
from cdc_core.web.listener import Listener
from cdc_core.web.routes import http_error, routes

__all__ = ["WebServer", "application"]

log = logging.getLogger(__name__)

_KEEP_ALIVE_S = 30
"""How long a connection may wait for its next request."""
_LAST_ANSWERS_S = 3
"""How long a server that is closed lets its answers take. Then it hangs up."""
_LEFT_AFTER_S = 10.0
"""How long a server that is closed waits for handlers that hang."""


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


class WebServer:
    """Serves *app* until it is closed, in a thread. Raises: ConfigError when it cannot listen where *access* says."""

    def __init__(self, app: Starlette, access: Access) -> None:
        self._socket = _listening(access.address)
        self.address = Address(access.address.host, self._socket.getsockname()[1])
        self._scheme = access.origins.scheme
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=GuardedConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=MAX_HEAD,
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # warnings are about what clients do wrong
        self._server = _Uvicorn(config, self._socket, access)
        self._thread = threading.Thread(target=self._server.run, name="web", daemon=True)
        self._thread.start()
        if not self._server.begun.wait(timeout=30):
            raise ConfigError(f"--listen {access.address}: the server does not start; try another address")

    @property
    def url(self) -> str:
        host = self.address
        if host.is_everywhere:
            host = Address("localhost", host.port)
        return f"{self._scheme}://{host}"

    @property
    def connections(self) -> int:
        """How many there are now."""
        return self._server.connections

    def close(self) -> None:
        """Stop listening. Return when no further request is answered, or only some whose handlers hang."""
        self._server.should_exit = True
        self._thread.join(_LEFT_AFTER_S)
        if self._thread.is_alive():
            log.warning("the server at %s was left while a handler hangs", self.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Uvicorn(uvicorn.Server):
    """Listens by our `Listener`, which counts connections."""

    def __init__(self, config: uvicorn.Config, listening: socket.socket, access: Access) -> None:
        super().__init__(config)
        self.begun = threading.Event()
        self.servers = []
        self._listening, self._access = listening, access
        self._listener: Listener | None = None

    @property
    def connections(self) -> int:
        return 0 if self._listener is None else len(self._listener)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        state = self.lifespan.state

        def made(end: Callable[[], None]) -> asyncio.Protocol:
            within_s = self._access.settings.request_timeout
            return GuardedConnection(self.config, self.server_state, state, within_s=within_s, on_end=end)

        self._listener = Listener(self._listening, self._access, made)
        self.started = True
        self.begun.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        assert self._listener is not None
        self._listener.close()
        loop = asyncio.get_running_loop()
        loop.call_later(_LAST_ANSWERS_S, self._hang_up)
        await super().shutdown(sockets)

    def _hang_up(self) -> None:
        """End the connections that still wait for answers, such as streams, which then end too."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _listening(address: Address) -> socket.socket:
    """Return a socket that listens. Raises: ConfigError."""
    try:
        family, _, _, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        both: dict[str, Any] = {"dualstack_ipv6": True} if address.host == "::" and socket.has_dualstack_ipv6() else {}
        return socket.create_server(where[:2], family=family, backlog=128, **both)
    except OSError as error:
        why = error.strerror if isinstance(error, socket.gaierror) or not error.errno else os.strerror(error.errno)
        raise ConfigError(
            f"--listen {address}: this process cannot listen there: {why}; choose another address with"
            " --listen=HOST:PORT"
        ) from error
