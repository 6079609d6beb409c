"""Steering changefeeds and nodes."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from starlette.requests import Request

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.errors import ConfigError
from cdc_core.web.deployment import deployment_of
from cdc_core.web.endpoint import Endpoints, Role
from cdc_core.web.page.confirmations import Confirmation, add_confirmed
from cdc_core.web.page.rendering import error_page
from cdc_core.web.page.requests import feed_path, form_values, known_name
from cdc_core.web.page.states import FOR_ADMINS
from cdc_core.web.requests import name_of

__all__ = ["ENDPOINTS"]

ENDPOINTS = Endpoints(refused=error_page)
_TEXTS = {
    "pause": (
        "Its node finishes the running step, and no node runs it until it is resumed. While it is paused, its source"
        " retains the history that was not delivered, and may run out of space."
    ),
    "resume": "It continues where it stopped. Fix the cause of an error first: otherwise it pauses again.",
    "restart": "Its node finishes the running step and hands it over; it then begins a new attempt where it stopped.",
    "cancel": (
        "It ends for good: a node drops what it created at its source, such as a slot and a publication. It cannot be"
        " resumed. What was delivered stays at the sink."
    ),
}


def _resume(changefeeds: Changefeeds, name: str, _reason: str) -> None:
    paused = changefeeds.known(name).paused
    if changefeeds.resume(name).is_run and paused is None:
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
        reason = form_values(request).get("reason", "").strip()[:500] or f"asked for by {request.state.user or 'local'}"
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
        text="It finishes the running steps of its jobs, hands them over, and ends. Other nodes adopt the jobs.",
        button=f"Drain {node}",
        target=f"/ui/nodes/{quote(node, safe='')}/drain",
        back="/ui/nodes",
        harm=True,
    )


def _drain(request: Request) -> str:
    deployment_of(request).changefeeds.drain(name_of(request, "node"))
    return "/ui/nodes?done=drain"


add_confirmed(ENDPOINTS, "/ui/nodes/{node}/drain", Role.ADMIN, _about_drain, _drain)
