"""Every address of the page."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.web.endpoint import Endpoint, Role
from cdc_core.web.page.actions import ask_to_drain, asking, doing, drain
from cdc_core.web.page.altering import alter, show_alter
from cdc_core.web.page.creating import check_new, create_new, read_text, show_new, validate_new
from cdc_core.web.page.errors import error_page
from cdc_core.web.page.letters import (
    ask_to_discard,
    ask_to_replay,
    discard,
    replay_all,
    show_letter,
    show_preview,
)
from cdc_core.web.page.signing_in import ask_for_token, sign_in, sign_out
from cdc_core.web.page.states import ACTIONS, FOR_ADMINS
from cdc_core.web.page.static_files import static_file
from cdc_core.web.page.traces import begin_trace, end_trace
from cdc_core.web.page.views import (
    show_changefeed,
    show_nodes,
    show_overview,
    show_plugins,
    stream_changefeed,
    stream_nodes,
    stream_overview,
    the_points,
)

__all__ = ["page_endpoints"]

_FEED = "/ui/changefeeds/{name}"


def page_endpoints() -> list[Endpoint]:
    """Return the endpoints of the page. They answer with HTML, also about errors of their handlers."""
    return [
        *_public(),
        _endpoint("GET", "/ui", Role.VIEW, show_overview),
        _endpoint("GET", "/ui/live", Role.VIEW, stream_overview),
        _endpoint("GET", "/ui/nodes", Role.VIEW, show_nodes),
        _endpoint("GET", "/ui/nodes/live", Role.VIEW, stream_nodes),
        _endpoint("GET", "/ui/plugins", Role.VIEW, show_plugins),
        _endpoint("GET", _FEED, Role.VIEW, show_changefeed),
        _endpoint("GET", f"{_FEED}/live", Role.VIEW, stream_changefeed),
        _endpoint("GET", f"{_FEED}/points", Role.VIEW, the_points),
        _endpoint("POST", f"{_FEED}/traces", Role.OPERATE, begin_trace),
        _endpoint("POST", f"{_FEED}/traces/{{number}}/end", Role.OPERATE, end_trace),
        *_steering(),
        *_dead_letters(),
        *_creating(),
    ]


def _public() -> list[Endpoint]:
    return [
        _endpoint("GET", "/ui/static/{path:path}", Role.ANYONE, static_file),
        _endpoint("GET", "/ui/login", Role.ANYONE, ask_for_token),
        _endpoint("POST", "/ui/login", Role.ANYONE, sign_in),
        _endpoint("POST", "/ui/logout", Role.ANYONE, sign_out),
    ]


def _steering() -> list[Endpoint]:
    found = []
    for action in ACTIONS:
        role = Role.ADMIN if action in FOR_ADMINS else Role.OPERATE
        ask, obey = (show_alter, alter) if action == "alter" else (asking(action), doing(action))
        found.append(_endpoint("GET", f"{_FEED}/{action}", role, ask))
        found.append(_endpoint("POST", f"{_FEED}/{action}", role, obey))
    return [
        *found,
        _endpoint("GET", "/ui/nodes/{node}/drain", Role.ADMIN, ask_to_drain),
        _endpoint("POST", "/ui/nodes/{node}/drain", Role.ADMIN, drain),
    ]


def _dead_letters() -> list[Endpoint]:
    one = f"{_FEED}/dead-letters/{{number}}"
    return [
        _endpoint("GET", f"{_FEED}/replay", Role.OPERATE, ask_to_replay),
        _endpoint("POST", f"{_FEED}/replay", Role.OPERATE, replay_all),
        _endpoint("GET", one, Role.OPERATE, show_letter),
        _endpoint("GET", f"{one}/discard", Role.OPERATE, ask_to_discard),
        _endpoint("POST", f"{one}/discard", Role.OPERATE, discard),
        _endpoint("GET", f"{_FEED}/preview", Role.OPERATE, show_preview, costly=True),
    ]


def _creating() -> list[Endpoint]:
    return [
        _endpoint("GET", "/ui/new", Role.ADMIN, show_new),
        _endpoint("POST", "/ui/new", Role.ADMIN, create_new),
        _endpoint("POST", "/ui/new/validate", Role.ADMIN, validate_new),
        _endpoint("POST", "/ui/new/text", Role.ADMIN, read_text),
        _endpoint("POST", "/ui/new/check", Role.ADMIN, check_new),
    ]


def _endpoint(
    method: str, path: str, role: Role, handle: Callable[[Request], Response], *, costly: bool = False
) -> Endpoint:
    return Endpoint(method=method, path=path, role=role, handle=handle, refused=error_page, costly=costly)
