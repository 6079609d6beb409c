"""Signing in: a browser keeps the token in a cookie, which no script can read and no other site can use."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.web.access.access import Access
from cdc_core.web.access.guard import COOKIE
from cdc_core.web.endpoint import Endpoints, Role
from cdc_core.web.page.rendering import LOGIN, error_page, form_values, page, redirect

ENDPOINTS = Endpoints(refused=error_page)

_HOME = "/ui"
_KEPT_S = 12 * 3600


@ENDPOINTS.add("GET /ui/login", Role.ANYONE)
def ask_for_token(request: Request) -> Response:
    return page(request, "login.html", next=_inside(request.query_params.get("next", "")), error="")


@ENDPOINTS.add("POST /ui/login", Role.ANYONE)
def sign_in(request: Request) -> Response:
    """Set the cookie when the token is known; otherwise show the form again."""
    values, access = form_values(request), _access(request)
    wanted, token = _inside(values.get("next", "")), values.get("token", "").strip()
    if access.callers is None:
        return redirect(wanted)
    if not access.callers.are_known:
        error = "The file of tokens cannot be read at present; the server's log says why."
        return page(request, "login.html", status=503, next=wanted, error=error)
    if access.callers.by_token(token) is None:
        return page(request, "login.html", status=401, next=wanted, error="This token is not known here.")
    answer = redirect(wanted)
    secure = bool(getattr(request.state, "secure", True))
    answer.set_cookie(COOKIE, token, max_age=_KEPT_S, path="/", httponly=True, samesite="strict", secure=secure)
    return answer


@ENDPOINTS.add("POST /ui/logout", Role.ANYONE)
def sign_out(_request: Request) -> Response:
    answer = redirect(LOGIN)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer


def _inside(path: str) -> str:
    """Return *path* if it is one of the page's own, otherwise that of the overview: never that of another site."""
    plain = path.isprintable() and "\\" not in path
    return path if plain and (path == _HOME or path.startswith((f"{_HOME}/", f"{_HOME}?"))) else _HOME


def _access(request: Request) -> Access:
    access: Access = request.app.state.access
    return access
