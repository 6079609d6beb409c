"""Styles and scripts: files of this package."""

from __future__ import annotations

import functools
import hashlib
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.web.endpoint import Endpoints, Refusal, Role
from cdc_core.web.page.rendering import error_page

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
