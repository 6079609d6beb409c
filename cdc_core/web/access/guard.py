"""What every request passes before anything looks at it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import unquote, unquote_to_bytes

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cdc_core.web.access.access import Access
from cdc_core.web.access.callers import Caller
from cdc_core.web.access.tls import subject_of
from cdc_core.web.endpoint import Refusal, Role
from cdc_core.web.routes import error_answer

log = logging.getLogger(__name__)

COOKIE = "cdc_token"
"""Holds the token of a browser. Set with HttpOnly and SameSite=Strict, and Secure if `request.state.secure`."""
MAX_HEAD = 32 * 1024
"""Bytes of the path, the query and all headers of a request."""
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_ONCE = ("authorization", "content-length", "content-type", "host", "origin", "transfer-encoding")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing of the page is loaded from elsewhere, and no script or style stands in the page itself."""
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # "no-referrer" would make browsers send `Origin: null` with the forms of the page
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Passes to *app* only requests that are well formed, meant for this server, not too many, and not forged.

    It sets `request.state.role` and `.user`, None for a caller without proof: what such a one may do is decided for
    each endpoint, by `Access.allow`. `request.state.secure` says whether a browser reaches the server by HTTPS, and
    `.callers_are_known` whether the file of tokens can be read. Reading a body that is too large or too slow raises
    `Refusal`.
    """

    def __init__(self, app: ASGIApp, *, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        answer_to = _Answering(scope, headers, send)
        try:
            self._admit(scope, headers)
        except Refusal as refusal:
            answer = error_answer(refusal.status, str(refusal))
            answer.headers.update(refusal.headers)
            answer_to.closes = True
            await answer(scope, receive, answer_to)
            return
        body = _Body(receive, self._access.settings.max_body, self._access.settings.request_timeout)
        answer_to.body = body
        with suppress(ClientDisconnect):  # while its body is read
            await self._app(scope, body, answer_to)

    def _admit(self, scope: Scope, headers: Headers) -> None:
        _require_sound(scope, headers)
        host = _host(scope, headers)
        _require_sound_path(scope)
        access, state = self._access, scope["state"]
        if not access.origins.answers_to(host):
            raise Refusal(421, f"this server does not answer to the name {host!r}")
        address = access.client_of(scope["client"])
        caller, proved = None, False
        if access.callers is not None:
            caller, proved = self._caller(headers, state)
        wait_s = access.rate.take(f"user {caller.name}" if caller else f"address {address}")
        if wait_s:
            raise Refusal(429, f"too many requests from this client; retry in {wait_s} s", wait_s=wait_s)
        state["user"] = caller.name if caller else ("local" if access.callers is None else None)
        state["role"] = caller.role if caller else (Role.ADMIN if access.callers is None else Role.ANYONE)
        state["secure"] = access.origins.is_secure(host)
        state["wrong_proof"] = proved and caller is None
        state["callers_are_known"] = access.callers is None or access.callers.are_known
        if scope["method"] not in _SAFE_METHODS:
            origin, site = headers.get("origin"), headers.get("sec-fetch-site")
            by_cookie = caller is not None and "authorization" not in headers and "cookie" in headers
            if not access.origins.allows_change(host=host, origin=origin, site=site) or (
                by_cookie and origin is None and site is None
            ):
                raise Refusal(403, "cross-site request refused, because it would change something on this server")

    def _caller(self, headers: Headers, state: Mapping[str, object]) -> tuple[Caller | None, bool]:
        """Return who asks, and whether they tried to show it."""
        callers = self._access.callers
        assert callers is not None
        problem = callers.refresh()
        if problem is not None:
            log.error("%s; until then every token is refused", problem)
        given = headers.get("authorization")
        if given is not None:
            scheme, _, token = given.partition(" ")
            return (callers.by_token(token.strip()) if scheme.lower() == "bearer" else None), True
        cookie = cookie_parser("; ".join(headers.getlist("cookie"))).get(COOKIE)
        if cookie:
            return callers.by_token(cookie), True
        certificate = state.get("certificate")
        if isinstance(certificate, Mapping):
            return callers.by_subject(subject_of(certificate)), True
        return None, False


class _Body:
    """`receive` with a limit on size and time. Raises: Refusal."""

    def __init__(self, receive: Receive, limit: int, within_s: float) -> None:
        self._receive, self._limit, self._within_s = receive, limit, within_s
        self._size = 0
        self._deadline: float | None = None
        self.is_complete = False

    async def __call__(self) -> Message:
        if self.is_complete:  # what follows is the end of the connection, for which a stream may wait long
            return await self._receive()
        loop = asyncio.get_running_loop()
        if self._deadline is None:
            self._deadline = loop.time() + self._within_s
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise Refusal(408, f"the body of the request took longer than {self._within_s:g} s") from None
        if message["type"] != "http.request":
            return message
        self._size += len(message.get("body", b""))
        if self._size > self._limit:
            raise Refusal(413, f"the body of the request is larger than {self._limit} bytes")
        self.is_complete = not message.get("more_body", False)
        return message


class _Answering:
    """`send` with the headers that every answer has."""

    def __init__(self, scope: Scope, headers: Headers, send: Send) -> None:
        self._scope, self._send = scope, send
        self._has_body = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        self.closes = False
        self.body: _Body | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            answer = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                answer.setdefault(name, value)
            if message["status"] == 401:
                answer["WWW-Authenticate"] = "Bearer"
            if self._has_body and (self.closes or self.body is None or not self.body.is_complete):
                answer["Connection"] = "close"  # otherwise the rest of the body would be read without end
            if message["status"] != 429:
                self._note(message["status"])
        await self._send(message)

    def _note(self, status: int) -> None:
        """Log who changed something, or tried to; not each request of a flood."""
        if self._scope["method"] in _SAFE_METHODS:
            return
        state = self._scope["state"]
        path = self._scope.get("raw_path", b"").decode("ascii", "backslashreplace")
        user = state.get("user") or "an unknown caller"
        log.info("%s %s by %s: status %d", self._scope["method"], path[:200], user, status)


def _require_sound(scope: Scope, headers: Headers) -> None:
    """Return when no two programs can read the request differently. Raises: Refusal."""
    for name in _ONCE:
        if len(headers.getlist(name)) > 1:
            raise Refusal(400, f"the header {name} appears more than once")
    if "transfer-encoding" in headers and "content-length" in headers:
        raise Refusal(400, "the request has both Content-Length and Transfer-Encoding")
    if scope["http_version"] not in ("1.0", "1.1"):
        raise Refusal(505, "this server speaks HTTP/1.1")
    raw = scope.get("raw_path") or b""
    if len(raw) + len(scope["query_string"]) + sum(len(name) + len(value) for name, value in headers.raw) > MAX_HEAD:
        raise Refusal(431, f"the head of the request is larger than {MAX_HEAD} bytes")


def _host(scope: Scope, headers: Headers) -> str:
    """Return which host is asked: the target `http://HOST/PATH`, as proxies get it, names it in place of the header.

    Then the scope has the path alone, and this host.
    """
    target: bytes = scope["raw_path"]
    scheme, separator, rest = target.decode("ascii").partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        return headers.get("host", "")
    host, slash, path = rest.partition("/")
    path = slash + path or "/"
    scope["raw_path"], scope["path"] = path.encode("ascii"), unquote(path)
    MutableHeaders(scope=scope)["host"] = host
    return host


def _require_sound_path(scope: Scope) -> None:
    """Return when the path cannot be read in two ways. Raises: Refusal."""
    raw = scope["raw_path"]
    try:
        path = unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal(400, "the path is not UTF-8") from None
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        raise Refusal(400, "the path has a control character")
    if not path.startswith("/") or any(part in (".", "..") for part in path.split("/")):
        raise Refusal(400, "the path is not absolute, or leads upwards")
