"""A preview: the messages that a job would send for some rows that its tables hold."""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.web.previews import MAX_ROWS, messages
from cdc_core.web.requests import number

__all__ = ["preview"]


def preview(request: Request) -> Response:
    """Return the messages of some rows. Sends nothing, saves nothing, and leaves nothing behind."""
    rows = number(request, "rows", default=20, least=1, most=MAX_ROWS)
    return JSONResponse([asdict(message) for message in messages(request, rows)])
