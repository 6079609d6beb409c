"""What anybody may have: styles and scripts, which are files of this package, and the page to sign in.

A browser keeps the token in a cookie, which no script can read and no other site can use.
"""

from __future__ import annotations

import functools
import hashlib
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.web.access.access import Access
from cdc_core.web.access.guard import COOKIE
from cdc_core.web.endpoint import Endpoints, Refusal, Role
from cdc_core.web.page.rendering import LOGIN, error_page, form_values, page, redirect

ENDPOINTS = Endpoints(refused=error_page)

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


@ENDPOINTS.add("GET /ui/static/{path:path}", Role.ANYONE)
def static_file(request: Request) -> Response:
    """Return one of the files; anybody may have them."""
    found = _held().get(request.path_params["path"])
    if found is None:
        raise Refusal(404, "there is no such file")
    content, media, tag = found
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media, headers=headers)


@functools.cache
def _held() -> dict[str, tuple[bytes, str, str]]:
    """Return content, media type and tag of every file by its path: a path that is asked for never names another."""
    found = {}
    own = files("cdc_core.web.page") / "static"
    for folder, prefix in ((own, ""), (own / "vendor", "vendor/")):
        for file in folder.iterdir():
            if file.is_file():
                content = file.read_bytes()
                media = _TYPES[file.name.rpartition(".")[2]]
                found[prefix + file.name] = (content, media, f'"{hashlib.sha256(content).hexdigest()[:16]}"')
    return found


_HOME = "/ui"
_KEPT_S = 12 * 3600


@ENDPOINTS.add("GET /ui/login", Role.ANYONE)
def ask_for_token(request: Request) -> Response:
    return page(request, "login.html", next=_inside(request.query_params.get("next", "")), error="")


@ENDPOINTS.add("POST /ui/login", Role.ANYONE)
def sign_in(request: Request) -> Response:
    """Set the cookie when the token is known; otherwise show the form again."""
    values = form_values(request)
    access: Access = request.app.state.access
    wanted, token = _inside(values.get("next", "")), values.get("token", "").strip()
    if access.callers is None:
        return redirect(wanted)
    if not access.callers.are_known:
        error = "The token file cannot be read; the server's log says why."
        return page(request, "login.html", status=503, next=wanted, error=error)
    if access.callers.by_token(token) is None:
        return page(request, "login.html", status=401, next=wanted, error="Unknown token.")
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
