"""Steering changefeeds and nodes, and tracing changes."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.changefeeds.tracing import checked_key
from cdc_core.errors import ConfigError
from cdc_core.web.endpoint import Endpoints, Role
from cdc_core.web.page.rendering import (
    Confirmation,
    add_confirmed,
    error_page,
    feed_path,
    form_values,
    known_name,
    redirect,
)
from cdc_core.web.page.texts import FOR_ADMINS
from cdc_core.web.requests import deployment_of, name_of

ENDPOINTS = Endpoints(refused=error_page)
_TEXTS = {
    "pause": (
        "The changefeed finishes and saves the running step, and does not run until it is resumed. While it is paused,"
        " its source retains the history that was not delivered, and may run out of disk space."
    ),
    "resume": (
        "The changefeed continues where it stopped. If an error paused it, fix the cause first; otherwise it pauses"
        " again."
    ),
    "restart": "The node finishes the running step and hands the job over. A new attempt then begins where it stopped.",
    "cancel": (
        "A canceled job cannot be resumed: a node drops what it created at its source, such as a slot and a"
        " publication. What was delivered stays at the sink."
    ),
}


def _resume(changefeeds: Changefeeds, name: str, reason: str) -> None:
    paused = changefeeds.known(name).paused
    job = changefeeds.resume(name, reason)
    if job.is_run and paused is None and job.state != "pause-requested":
        raise ConfigError(f"changefeed '{name}' is not paused")


_ASKED: dict[str, Callable[[Changefeeds, str, str], object]] = {
    "pause": Changefeeds.pause,
    "resume": _resume,
    "restart": Changefeeds.restart,
    "cancel": Changefeeds.cancel,
}


def _add(action: str) -> None:
    def question(request: Request) -> Confirmation:
        name = known_name(request)
        return Confirmation(
            title=f"{action.capitalize()} {name}?",
            text=_TEXTS[action],
            button=f"{action.capitalize()} {name}",
            target=f"{feed_path(name)}/{action}",
            back=feed_path(name),
            harm=action == "cancel",
            asks_reason=action in ("pause", "cancel"),
        )

    def obey(request: Request) -> str:
        name = known_name(request)
        reason = form_values(request).get("reason", "").strip()[:500] or f"requested by {request.state.user or 'local'}"
        _ASKED[action](deployment_of(request).changefeeds, name, reason)
        return f"{feed_path(name)}?done={action}"

    role = Role.ADMIN if action in FOR_ADMINS else Role.OPERATE
    add_confirmed(ENDPOINTS, f"/ui/changefeeds/{{name}}/{action}", role, question, obey)


for _action in _ASKED:
    _add(_action)


def _about_drain(request: Request) -> Confirmation:
    node = name_of(request, "node")
    return Confirmation(
        title=f"Drain {node}?",
        text="The node finishes the running steps of its jobs, hands the jobs over, and ends. Other nodes adopt them.",
        button=f"Drain {node}",
        target=f"/ui/nodes/{quote(node, safe='')}/drain",
        back="/ui/nodes",
        harm=True,
    )


def _drain(request: Request) -> str:
    deployment_of(request).changefeeds.drain(name_of(request, "node"))
    return "/ui/nodes?done=drain"


add_confirmed(ENDPOINTS, "/ui/nodes/{node}/drain", Role.ADMIN, _about_drain, _drain)


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
