"""A preview: the messages that a job would send for some rows that its tables hold."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import CdcError, ConfigError
from cdc_core.watching.preview import Previewed
from cdc_core.watching.preview import preview as previewed
from cdc_core.web.deployment import Deployment, deployment_of
from cdc_core.web.endpoint import Refusal
from cdc_core.web.requests import name_of, number, watch_client
from cdc_core.web.v1.preview_process import preview_apart

__all__ = ["messages", "preview"]

_MAX_ROWS = 100
_WAIT_S = 5
_places = threading.BoundedSemaphore(2)
"""Each preview reads the source for itself."""
_place_apart = threading.BoundedSemaphore(1)
"""A preview of a query takes a Spark of its own."""


def preview(request: Request) -> Response:
    """Return the messages of some rows. Sends nothing, saves nothing, and leaves nothing behind."""
    rows = number(request, "rows", default=20, least=1, most=_MAX_ROWS)
    found = messages(deployment_of(request), name_of(request), rows, is_gone=watch_client(request))
    return JSONResponse([asdict(message) for message in found])


def messages(deployment: Deployment, name: str, rows: int, *, is_gone: Callable[[], bool]) -> list[Previewed]:
    """Return the messages that a job would send for so many *rows*. Raises: Refusal; ConfigError.

    With a query, or sections of tables, this takes several seconds, unless *is_gone* says that the client has left.
    """
    known = deployment.store.changefeeds.find(name)
    if known is None or deployment.store.jobs.find(name) is None:
        raise Refusal(404, f"there is no job '{name}'")
    feed = deployment.changefeeds.feed(name, known.definition)
    evaluated = feed.queries().exist
    places = _place_apart if evaluated else _places
    if not places.acquire(blocking=False):
        made = "a preview of a query is" if evaluated else "two previews are"
        raise Refusal(429, f"{made} being made; ask again in some seconds", wait_s=_WAIT_S)
    try:
        found = preview_apart(feed, rows=rows, is_gone=is_gone) if evaluated else _preview_here(feed, rows)
    except ConfigError:
        raise
    except CdcError as error:
        raise Refusal(409, deployment.masked(f"job '{name}' cannot be previewed: {error}")) from error
    finally:
        places.release()
    return [_masked(deployment, message) for message in found]


def _preview_here(feed: ResolvedChangefeed, rows: int) -> list[Previewed]:
    with closing(previewed(feed, rows=rows, live=False)) as found:
        return list(found)


def _masked(deployment: Deployment, message: Previewed) -> Previewed:
    """Return *message* without secrets, which only the options of the changefeed can have brought into it."""
    headers = {
        name: None if value is None else deployment.masked(value) for name, value in (message.headers or {}).items()
    }
    return replace(
        message,
        topic=deployment.masked(message.topic),
        headers=None if message.headers is None else headers,
        error=None if message.error is None else deployment.masked(message.error),
    )
