"""A preview: the messages that a job would send for some rows that its tables hold."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.errors import CdcError, ConfigError
from cdc_core.watching.preview import Previewed
from cdc_core.watching.preview import preview as previewed
from cdc_core.web.deployment import Deployment, deployment_of
from cdc_core.web.endpoint import Refusal
from cdc_core.web.requests import name_of, number

__all__ = ["messages", "preview"]

_MOST_ROWS = 100
_places = threading.BoundedSemaphore(2)
"""Each preview reads the source for itself."""


def preview(request: Request) -> Response:
    """Return the messages of some rows. Sends nothing, saves nothing, and leaves nothing behind."""
    rows = number(request, "rows", default=20, least=1, most=_MOST_ROWS)
    return JSONResponse([asdict(message) for message in messages(deployment_of(request), name_of(request), rows)])


def messages(deployment: Deployment, name: str, rows: int) -> list[Previewed]:
    """Return the messages that a job would send for so many *rows*. Raises: Refusal; ConfigError."""
    known = deployment.store.find(name)
    if known is None or deployment.store.find_job(name) is None:
        raise Refusal(404, f"there is no job '{name}'")
    feed = deployment.feed(name, known.definition)
    if feed.queries().exist:
        raise Refusal(409, f"job '{name}' has a query, which Spark evaluates; use `cdc preview --store URL {name}`")
    if not _places.acquire(blocking=False):
        raise Refusal(429, "two previews are being made; ask again when one is ready")
    try:
        with closing(previewed(feed, rows=rows, live=False)) as found:
            return list(found)
    except ConfigError:
        raise
    except CdcError as error:
        raise Refusal(409, deployment.masked(f"job '{name}' cannot be previewed: {error}")) from error
    finally:
        _places.release()
