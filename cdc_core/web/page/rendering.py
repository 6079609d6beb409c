"""From requests to answers: forms, templates, redirects, questions that people confirm, and errors as pages."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from cdc_core.errors import ConfigError
from cdc_core.options import counted
from cdc_core.store.values import ChangefeedRecord
from cdc_core.store.verbs import UnknownError
from cdc_core.web.access.guard import COOKIE
from cdc_core.web.endpoint import Endpoints, Refusal, Role
from cdc_core.web.page import texts
from cdc_core.web.page.texts import note_of, tone_of
from cdc_core.web.requests import deployment_of, name_of

MAX_ENTRIES = 1000
"""How many values a form may have; the fields that are empty come on top."""
_MAX_FIELDS = 2 * MAX_ENTRIES
_FORM = "application/x-www-form-urlencoded"


def form_values(request: Request) -> dict[str, str]:
    """Return the fields of the form that the request holds. Raises: Refusal when it holds no form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body: bytes = request.state.body
    if body and kind != _FORM:
        raise Refusal(415, f"a form must be sent as {_FORM}")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError as error:
        raise Refusal(400, "the form cannot be read: it is not UTF-8, or has too many fields") from error
    return {name: value.replace("\r\n", "\n") for name, value in fields}


def feed_path(name: str) -> str:
    """Return the address of the page of a changefeed."""
    return f"/ui/changefeeds/{quote(name, safe='')}"


def known(request: Request) -> ChangefeedRecord:
    """Return the changefeed in the path. Raises: Refusal when the store does not know it."""
    name = name_of(request)
    try:
        return deployment_of(request).changefeeds.known(name)
    except UnknownError as error:
        raise Refusal(404, f"there is no changefeed '{name}' in the store") from error


def known_name(request: Request) -> str:
    """Return the name of a changefeed in the path. Raises: Refusal when the store does not know it."""
    return known(request).name


LOGIN = "/ui/login"
_TITLES = {400: "This cannot be done", 403: "This is not allowed", 404: "Page not found", 503: "Try again later"}

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
    title = _TITLES.get(status, "Something went wrong")
    return page(request, "error.html", status=status, title=title, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A question, and the form that answers it. `harm`: it cannot be undone. `error` is why it could not be done."""

    title: str
    text: str
    button: str
    target: str
    back: str
    harm: bool = False
    asks_reason: bool = False
    error: str = ""


def add_confirmed(
    endpoints: Endpoints,
    path: str,
    role: Role,
    question: Callable[[Request], Confirmation],
    obey: Callable[[Request], str],
) -> None:
    """Add to *endpoints* those that ask a *question*, and *obey*, which returns the address of the page that follows.

    For its ConfigError the question is shown again, with the reason.
    """

    @endpoints.add(f"GET {path}", role)
    def ask(request: Request) -> Response:
        return page(request, "confirm.html", question=question(request))

    @endpoints.add(f"POST {path}", role)
    def do(request: Request) -> Response:
        asked = question(request)
        try:
            return redirect(obey(request))
        except ConfigError as error:
            asked = replace(asked, error=deployment_of(request).masked(str(error)))
            return page(request, "confirm.html", status=409, question=asked)
