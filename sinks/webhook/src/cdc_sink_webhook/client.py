"""The HTTP client: connections, headers, and one attempt at a request."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpcore2

from cdc_core.options import format_duration
from cdc_sink_webhook.answers import Answer, retry_after_s
from cdc_sink_webhook.bodies import Format
from cdc_sink_webhook.connections import Connections, Line, TlsNetwork
from cdc_sink_webhook.endpoint import Endpoint
from cdc_sink_webhook.options import WebhookOptions
from cdc_sink_webhook.request import Request
from cdc_sink_webhook.signature import Signer

__all__ = ["Client", "UnansweredError"]

# hpack tells of every header that it packs, at DEBUG: secrets would show in the log of whoever turns that on
logging.getLogger("hpack").setLevel(logging.INFO)

_IDLE_S = 60.0
_MOST_READ = 64 * 1024
_MOST_SHOWN = 200


class UnansweredError(Exception):
    """No answer came, so that nobody knows whether the request arrived. `dropped`: its connection broke."""

    def __init__(self, reason: str, *, dropped: bool = False) -> None:
        super().__init__(reason)
        self.dropped = dropped


class Client:
    """Sends requests over connections that stay open, by HTTP/2 where the endpoint speaks it.

    Lives in one event loop. Below is httpcore2, what the client httpx2 is built on: it follows no redirect, keeps no
    cookie and asks no proxy of the environment, none of which should be, and takes about 15 % less time for a request.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        options: WebhookOptions,
        *,
        context: ssl.SSLContext | None,
        format: Format,  # noqa: A002
        mask: Callable[[str], str],
    ) -> None:
        self._connections = Connections(
            lambda: httpcore2.AsyncConnectionPool(
                ssl_context=context,
                max_connections=None,  # one, and its successor while requests on it end
                max_keepalive_connections=1,
                keepalive_expiry=_IDLE_S,
                http2=context is not None,
                network_backend=TlsNetwork() if context is not None else None,
            ),
            idle_s=_IDLE_S,
        )
        self._url = httpcore2.URL(
            scheme="https" if endpoint.tls else "http",
            host=endpoint.host_name,
            port=endpoint.port,
            target=endpoint.target,
        )
        self._timeout_s = float(options.webhook_client_timeout)
        self._signer = Signer(options.webhook_signing_secret) if options.webhook_signing_secret is not None else None
        self._mask = mask
        headers = {
            "host": endpoint.authority,
            "user-agent": "cdc-sink-webhook",
            "accept-encoding": "identity",
            "content-type": format.content_type,
        }
        if options.compression != "none":
            headers["content-encoding"] = options.compression
        if endpoint.authorization is not None:
            headers["authorization"] = endpoint.authorization
        headers |= {name.lower(): value for name, value in (options.extra_headers or {}).items()}
        self._headers = _encoded(headers)

    async def post(self, request: Request) -> Answer:
        """Return the endpoint's answer to one attempt at *request*. Raises: UnansweredError."""
        headers = [
            *self._headers,
            (b"content-length", b"%d" % len(request.body)),
            (b"idempotency-key", b'"%b"' % request.id.encode()),
        ]
        if self._signer is not None:
            headers += _encoded(self._signer.headers(request.id, request.body, now=time.time()))
        try:
            async with self._connections.lease() as line:
                try:
                    async with asyncio.timeout(self._timeout_s) as limit:
                        extensions = {} if line.known.is_set() else {"trace": self._trace(line, limit)}
                        attempt = httpcore2.Request(
                            b"POST", self._url, headers=headers, content=request.body, extensions=extensions
                        )
                        return await self._exchange(line, attempt)
                except TimeoutError:
                    self._connections.mistrust(line)
                    raise
        except TimeoutError:
            waited = format_duration(self._timeout_s)
            raise UnansweredError(f"no answer came within webhook_client_timeout = {waited}") from None
        except httpcore2.ConnectError as error:
            raise UnansweredError(f"no connection was made ({self._shown(str(error))})") from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:  # OSError: what TLS says, as it is
            why = str(error) if not str(error).startswith("<") else ""  # httpcore2 passes on what h2 has for itself
            raise UnansweredError(
                f"the connection broke before the answer was there ({self._shown(why) or type(error).__name__})",
                dropped=True,
            ) from error

    async def aclose(self) -> None:
        """Close all connections."""
        await self._connections.aclose()

    def _trace(self, line: Line, limit: asyncio.Timeout) -> Callable[[str, dict[str, Any]], Awaitable[None]]:
        """Return what lets *line* learn from a request, whose *limit* begins anew when it is sent.

        So nobody takes a request for lost, and sends it twice, for the time that many connections take to be made.
        """

        async def trace(name: str, info: dict[str, Any]) -> None:
            if name.endswith(".send_request_headers.started"):
                limit.reschedule(asyncio.get_running_loop().time() + self._timeout_s)
            await line.trace(name, info)

        return trace

    async def _exchange(self, line: Line, request: httpcore2.Request) -> Answer:
        response = await line.pool.handle_async_request(request)
        begun = bytearray()
        try:
            async for part in response.aiter_stream():
                begun += part
                if len(begun) > _MOST_READ:  # an answer that has no end, or is none of ours to read
                    break
        finally:
            await response.aclose()
        if response.status < 300:
            return Answer(status=response.status)
        headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
        return Answer(
            status=response.status,
            text=self._shown(begun.decode("utf-8", "replace")),
            retry_after_s=retry_after_s(headers.get(b"retry-after"), headers.get(b"date")),
        )

    def _shown(self, text: str) -> str:
        """Return the beginning of *text* in one line, without secrets."""
        line = re.sub(r"[\s\x00-\x1f\x7f]+", " ", self._mask(text)).strip()
        return line if len(line) <= _MOST_SHOWN else line[:_MOST_SHOWN] + "…"


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
