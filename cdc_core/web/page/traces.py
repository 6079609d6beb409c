"""Traces of a changefeed: asking for one, and ending it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.watching.trace_keys import checked_key
from cdc_core.web.deployment import deployment_of
from cdc_core.web.endpoint import Endpoints, Role
from cdc_core.web.page.rendering import error_page, redirect
from cdc_core.web.page.requests import feed_path, form_values, known_name

__all__ = ["ENDPOINTS"]

ENDPOINTS = Endpoints(refused=error_page)


@ENDPOINTS.add("POST /ui/changefeeds/{name}/traces", Role.OPERATE)
def begin_trace(request: Request) -> Response:
    """Have the changes followed that the form names. Raises: ConfigError."""
    deployment = deployment_of(request)
    name, fields = known_name(request), form_values(request)
    table, key, rows = (fields.get(field, "").strip() for field in ("table", "key", "rows"))
    deployment.changefeeds.ask_trace(
        name,
        table=table or None,
        key=checked_key(key) if key else None,
        rows=int(rows) if rows.isascii() and rows.isdecimal() and len(rows) < 9 else 0,
    )
    return redirect(f"{feed_path(name)}?done=trace#traces")


@ENDPOINTS.add("POST /ui/changefeeds/{name}/traces/{number}/end", Role.OPERATE)
def end_trace(request: Request) -> Response:
    """Have one trace ended, and what it found forgotten. Raises: UnknownError."""
    deployment = deployment_of(request)
    name = known_name(request)
    deployment.changefeeds.end_trace(name, request.path_params["number"])
    return redirect(f"{feed_path(name)}?done=end-trace#traces")
