"""The HTTP client: connections, headers, and one attempt at a request."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import httpcore2

from cdc_core import format_duration
from cdc_sink_webhook.answers import Answer, retry_after_s
from cdc_sink_webhook.bodies import Format
from cdc_sink_webhook.connections import Connection, ConnectionPool, TlsBackend
from cdc_sink_webhook.endpoint import Endpoint
from cdc_sink_webhook.options import WebhookOptions
from cdc_sink_webhook.request import Request
from cdc_sink_webhook.signature import Signer

# hpack logs every header at DEBUG, secrets included
logging.getLogger("hpack").setLevel(logging.INFO)

_IDLE_S = 60.0
_MAX_AGE_S = 300.0
"""A new connection finds a new address of the endpoint."""
_HTTP2_WINDOW_BYTES = 65_535
"""So much of a body is sent with HTTP/2 before the endpoint asks for more."""
_MAX_READ_BYTES = 64 * 1024
_MAX_SHOWN = 200


class NoAnswerError(Exception):
    """No answer arrived, so it is unknown whether the endpoint has the request.

    `dropped`: the connection broke. `ended`: the endpoint had ended it gracefully before. `refused`: one side does not
    accept the certificate of the other.
    """

    def __init__(self, reason: str, *, dropped: bool = False, ended: bool = False, refused: bool = False) -> None:
        super().__init__(reason)
        self.dropped = dropped
        self.ended = ended
        self.refused = refused


class Client:
    """Sends requests over connections that stay open, with HTTP/2 where the endpoint supports it.

    Lives in one event loop. It uses httpcore2, the transport of the client httpx2: httpcore2 follows no redirects,
    keeps no cookies and ignores the proxy variables of the environment, as it should here, and takes about 15% less
    time for each request.
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
        self._connections, self._http1_connections = (
            ConnectionPool(partial(_new_pool, context, http2), idle_s=_IDLE_S, max_age_s=_MAX_AGE_S)
            for http2 in (context is not None, False)
        )
        self._sends_large_by_http1 = False
        self._url = httpcore2.URL(
            scheme="https" if endpoint.tls else "http",
            host=endpoint.ascii_host,
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

    async def post(self, request: Request, *, again: bool = False) -> Answer:
        """Return the endpoint's answer to one attempt at *request*. Raises: NoAnswerError.

        *again*: an earlier attempt got no answer, and not because its connection had been ended gracefully. If its
        body is large, large ones are sent with HTTP/1.1 from then on: with HTTP/2, httpcore2 waits until it may send
        the rest, and does not see the answer of a proxy that refuses a body before it has all of it.
        """
        large = len(request.body) > _HTTP2_WINDOW_BYTES
        self._sends_large_by_http1 |= again and large
        connections = self._http1_connections if large and self._sends_large_by_http1 else self._connections
        headers = [
            *self._headers,
            *request.headers,
            (b"content-length", b"%d" % len(request.body)),
            (b"idempotency-key", b'"%b"' % request.id.encode()),
        ]
        if self._signer is not None:
            headers += _encoded(self._signer.headers(request.id, request.body, now=time.time()))
        try:
            async with connections.lease() as connection:
                try:
                    async with asyncio.timeout(self._timeout_s) as limit:
                        extensions = {} if connection.connected else {"trace": self._trace(connection, limit)}
                        attempt = httpcore2.Request(
                            b"POST", self._url, headers=headers, content=request.body, extensions=extensions
                        )
                        return await self._exchange(connections, connection, attempt)
                except TimeoutError:
                    connections.retire(connection)
                    missing = "no response" if connection.connected else "cannot connect"
                    waited = format_duration(self._timeout_s)
                    raise NoAnswerError(f"{missing} within webhook_client_timeout = {waited}") from None
        except httpcore2.ConnectError as error:
            reason = self._shown(_reason(error))
            raise NoAnswerError(f"cannot connect ({reason})", refused=_is_refusal(error)) from error
        except (
            httpcore2.NetworkError,
            httpcore2.ProtocolError,
            OSError,
        ) as error:  # OSError: TLS errors come unwrapped
            why = re.sub(r"^(<.*|\d+$)", "", str(error))  # httpcore2 passes on internal reprs and numbers of h2
            raise NoAnswerError(
                f"the connection broke before the response was complete ({self._shown(why) or type(error).__name__})",
                dropped=True,
                ended=connection.ended,
                refused=_is_refusal(error),
            ) from error

    async def aclose(self) -> None:
        """Close all connections."""
        await self._connections.aclose()
        await self._http1_connections.aclose()

    def _trace(
        self, connection: Connection, limit: asyncio.Timeout
    ) -> Callable[[str, dict[str, Any]], Awaitable[None]]:
        """Return a trace function through which *connection* learns its capacity, and which restarts *limit*.

        The time limit starts again when the request is sent. Otherwise, when opening many connections takes long,
        requests would time out and be sent twice.
        """

        async def trace(name: str, info: dict[str, Any]) -> None:
            if name.endswith(".send_request_headers.started"):
                limit.reschedule(asyncio.get_running_loop().time() + self._timeout_s)
            await connection.trace(name, info)

        return trace

    async def _exchange(
        self, connections: ConnectionPool, connection: Connection, request: httpcore2.Request
    ) -> Answer:
        response = await connection.pool.handle_async_request(request)
        text = bytearray()
        try:
            async for part in response.aiter_stream():
                text += part
                if len(text) > _MAX_READ_BYTES:  # the rest does not matter, and may be endless
                    connections.retire(connection)  # with HTTP/2 it would take the room of later answers
                    break
        finally:
            await response.aclose()
        if response.status < 300:
            return Answer(status=response.status)
        headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
        return Answer(
            status=response.status,
            text=self._shown(text.decode("utf-8", "replace")),
            retry_after_s=retry_after_s(headers.get(b"retry-after"), headers.get(b"date")),
        )

    def _shown(self, text: str) -> str:
        """Return the beginning of *text* as one line, without secrets."""
        line = re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", " ", self._mask(text)).strip()
        return line if len(line) <= _MAX_SHOWN else line[:_MAX_SHOWN] + "…"


def _new_pool(
    context: ssl.SSLContext | None,
    http2: bool,
    on_goodbye: Callable[[], None],
) -> httpcore2.AsyncConnectionPool:
    return httpcore2.AsyncConnectionPool(
        ssl_context=context,
        max_connections=None,  # one, and its successor while the last requests on it finish
        max_keepalive_connections=1,
        keepalive_expiry=_IDLE_S,
        http2=http2,
        network_backend=TlsBackend(on_goodbye) if context is not None else None,
    )


def _is_refusal(error: BaseException | None) -> bool:
    """Return whether *error* says that one side does not accept the certificate of the other, or its TLS.

    An endpoint that has no HTTP/1.1 has HTTP/2.
    """
    while error is not None:
        if isinstance(error, ssl.SSLError):
            alert = error.reason or ""
            refused = "ALERT" in alert and "INTERNAL" not in alert and "NO_APPLICATION_PROTOCOL" not in alert
            return isinstance(error, ssl.SSLCertVerificationError) or refused
        error = error.__cause__ or error.__context__
    return False


def _reason(error: BaseException) -> str:
    """Return what *error* says, or the system's reasons: anyio says only that all attempts to connect failed."""
    first = error
    while (cause := first.__cause__ or first.__context__) is not None:
        if isinstance(cause, BaseExceptionGroup):
            return "; ".join(dict.fromkeys(map(_reason, cause.exceptions)))
        first = cause
    number = first.errno if isinstance(first, OSError) and not isinstance(first, ssl.SSLError) else None
    return os.strerror(number) if number is not None and number > 0 else str(error)


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
