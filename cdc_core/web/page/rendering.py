"""From values to answers: templates, redirects, and errors as pages."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from cdc_core.options import counted
from cdc_core.web.access.guard import COOKIE
from cdc_core.web.endpoint import Role
from cdc_core.web.page import texts
from cdc_core.web.page.texts import note_of, tone_of

LOGIN = "/ui/login"
_TITLES = {400: "This cannot be done", 403: "This is not allowed", 404: "There is nothing here", 503: "Try again later"}

_FILTERS = {
    "age": texts.age_text,
    "bytes": texts.bytes_text,
    "clock": texts.clock_text,
    "counted": counted,
    "json": functools.partial(json.dumps, ensure_ascii=False),
    "moment": texts.moment_text,
    "note": note_of,
    "number": texts.number_text,
    "outcome": texts.outcome_text,
    "rate": texts.rate_text,
    "share": texts.share_text,
    "tone": tone_of,
}
"""How templates show values, and what a report means for people."""


@functools.cache
def _templates() -> Environment:
    """Return the templates. Whatever they show is escaped, and what they name must be there."""
    found = Environment(
        loader=PackageLoader("cdc_core.web.page"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(_FILTERS)
    return found


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """Return a whole page for the caller, whose role decides what is offered."""
    role: Role = request.state.role
    known: Mapping[str, Any] = {
        "signed_in": role >= Role.VIEW,
        "can_sign_out": COOKIE in request.cookies,
        "may_operate": role >= Role.OPERATE,
        "may_administer": role >= Role.ADMIN,
        "problem": "",
    }
    text = _templates().get_template(template).render({**known, **values})
    return HTMLResponse(text, status_code=status)


def part(template: str, **values: Any) -> str:
    """Return a part of a page as HTML: the same template that the whole page includes."""
    return _templates().get_template(f"parts/{template}").render(values)


def redirect(path: str) -> Response:
    """Return the answer to a form that was obeyed: a browser then gets *path*, and a reload does nothing twice."""
    return RedirectResponse(path, status_code=303)


def error_page(request: Request, status: int, message: str) -> Response:
    """Return the page that says why *request* is not granted; the one to sign in for a caller who has not."""
    if status == 401 and request.method == "GET" and "hx-request" not in request.headers:
        wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return redirect(f"{LOGIN}?next={quote(wanted, safe='')}")
    title = _TITLES.get(status, "Something is wrong")
    return page(request, "error.html", status=status, title=title, message=message)
