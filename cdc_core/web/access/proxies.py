"""Whose request a trusted proxy passes on."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware


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
