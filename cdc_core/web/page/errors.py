"""Errors as pages."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.web.page.rendering import page, redirect

__all__ = ["LOGIN", "error_page"]

LOGIN = "/ui/login"
_TITLES = {400: "This cannot be done", 403: "This is not allowed", 404: "There is nothing here", 503: "Try again later"}


def error_page(request: Request, status: int, message: str) -> Response:
    """Return the page that says why *request* is not granted; the one to sign in for a caller who has not."""
    if status == 401 and request.method == "GET" and "hx-request" not in request.headers:
        wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return redirect(f"{LOGIN}?next={quote(wanted, safe='')}")
    title = _TITLES.get(status, "Something is wrong")
    return page(request, "error.html", status=status, title=title, message=message)
