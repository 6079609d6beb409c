"""From endpoints to routes: dispatch by method, the body, and errors as Kafka Connect words them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cdc_core.errors import CdcError, ConfigError, RetryableError
from cdc_core.store.verbs import BusyError, RefusedError, UnknownError
from cdc_core.web.endpoint import Endpoint, Refusal
from cdc_core.web.requests import deployment_of

log = logging.getLogger(__name__)

_SMALL = 65_536

Allow = Callable[[Request, Endpoint], None]
"""Returns when the caller may use the endpoint. Raises: Refusal."""


def routes(endpoints: Iterable[Endpoint], *, allow: Allow) -> list[Route]:
    """Return the routes of *endpoints*, in their order. Each request is *allowed* before its body is read."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        methods = by_path.setdefault(endpoint.path, {})
        assert endpoint.method not in methods, f"{endpoint.method} {endpoint.path} twice"
        methods[endpoint.method] = endpoint
    found = []
    for path, methods in by_path.items():
        answer = _dispatcher(methods, allow)
        every = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"]
        paths = [path] if path.endswith("/") else [path, f"{path}/"]
        found += [Route(each, answer, methods=every, include_in_schema=False) for each in paths]
    return found


def _dispatcher(methods: Mapping[str, Endpoint], allow: Allow) -> Callable[[Request], object]:
    has_head = "GET" in methods and not methods["GET"].costly
    allowed = ", ".join(sorted(methods) + (["HEAD"] if has_head else []))

    async def answer(request: Request) -> Response:
        endpoint = methods.get("GET" if request.method == "HEAD" and has_head else request.method)
        if endpoint is None:
            await _taken(request)
            answer = error_answer(405, "HTTP 405 Method Not Allowed")
            answer.headers["Allow"] = allowed
            return answer
        try:
            try:
                allow(request, endpoint)
            except Refusal:
                await _taken(request)
                raise
            request.state.body = await request.body()
            return await run_in_threadpool(endpoint.handle, request)
        except Refusal as refusal:
            answer = _refused(endpoint, request, refusal.status, str(refusal))
            answer.headers.update(refusal.headers)
            return answer
        except CdcError as error:
            return _refused(endpoint, request, status_of(error), str(error))
        except RecursionError:
            return _refused(endpoint, request, 400, "the request has values that are nested too deeply")
        except (HTTPException, ClientDisconnect):
            raise
        except Exception:
            log.exception("%s %s could not be answered", request.method, endpoint.path)
            return _refused(endpoint, request, 500, "the server could not answer this request; its log says why")

    return answer


async def _taken(request: Request) -> None:
    """Read and discard a small body: closing a connection with an unread body loses the answer."""
    if request.headers.get("expect", "").lower() == "100-continue" or (
        request.state.user is None and "transfer-encoding" in request.headers
    ):
        return  # the client waits to be asked for it, or its length is unknown
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:9]) <= _SMALL:
        with suppress(Refusal, ClientDisconnect):
            await request.body()


def _refused(endpoint: Endpoint, request: Request, status: int, message: str) -> Response:
    masked = deployment_of(request).masked(message)
    return error_answer(status, masked) if endpoint.refused is None else endpoint.refused(request, status, masked)


def error_answer(status: int, message: str) -> Response:
    """Return the body that every error has."""
    return JSONResponse({"error_code": status, "message": message}, status_code=status)


async def http_error(_request: Request, error: Exception) -> Response:
    """Return the answer to what Starlette refuses itself, such as an unknown path. For `exception_handlers`."""
    assert isinstance(error, HTTPException)
    answer = error_answer(error.status_code, f"HTTP {error.status_code} {error.detail}")
    answer.headers.update(error.headers or {})
    return answer


def status_of(error: CdcError | Refusal) -> int:
    """Return the status of the answer to a request whose handler raised *error*."""
    if isinstance(error, Refusal):
        return error.status
    if isinstance(error, UnknownError):
        return 404
    if isinstance(error, ConfigError):
        return 409 if isinstance(error, RefusedError | BusyError) else 400
    return 503 if isinstance(error, RetryableError) else 500
