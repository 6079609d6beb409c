"""Steering changefeeds and nodes: each action is confirmed on a page of its own, and then asked for by its form."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.errors import ConfigError
from cdc_core.web.page.confirmations import Confirmation, confirmation_of
from cdc_core.web.page.rendering import page, redirect
from cdc_core.web.page.requests import feed_path, form_values, known_name, name_of
from cdc_core.web.page.site import site_of

__all__ = ["ask_to_drain", "asking", "doing", "drain"]

_ASKED: dict[str, Callable[[Changefeeds, str, str], object]] = {
    "pause": Changefeeds.pause,
    "resume": lambda changefeeds, name, _reason: _resume(changefeeds, name),
    "restart": Changefeeds.restart,
    "cancel": Changefeeds.cancel,
}


def asking(action: str) -> Callable[[Request], Response]:
    """Return the handler that asks whether *action* is meant."""

    def ask(request: Request) -> Response:
        name = known_name(request)
        return page(request, "confirm.html", question=confirmation_of(action, name))

    return ask


def doing(action: str) -> Callable[[Request], Response]:
    """Return the handler that obeys the form of *action*: one that cannot be obeyed is shown again, with the reason."""

    def obey(request: Request) -> Response:
        deployment = site_of(request).deployment
        name = known_name(request)
        reason = form_values(request).get("reason", "").strip()[:500] or f"asked for by {request.state.user or 'local'}"
        try:
            _ASKED[action](deployment.changefeeds, name, reason)
        except ConfigError as error:
            question = confirmation_of(action, name, error=deployment.masked(str(error)))
            return page(request, "confirm.html", status=409, question=question)
        return redirect(f"{feed_path(name)}?done={action}")

    return obey


def _resume(changefeeds: Changefeeds, name: str) -> None:
    if changefeeds.resume(name) is False:
        raise ConfigError(f"changefeed '{name}' is not paused")


def ask_to_drain(request: Request) -> Response:
    return page(request, "confirm.html", question=_about_drain(name_of(request, "node")))


def drain(request: Request) -> Response:
    deployment, node = site_of(request).deployment, name_of(request, "node")
    try:
        deployment.changefeeds.drain(node)
    except ConfigError as error:
        question = _about_drain(node, error=deployment.masked(str(error)))
        return page(request, "confirm.html", status=409, question=question)
    return redirect("/ui/nodes?done=drain")


def _about_drain(node: str, *, error: str = "") -> Confirmation:
    return Confirmation(
        title=f"Drain {node}?",
        text="It finishes the running steps of its jobs, hands them over, and ends. Other nodes adopt the jobs.",
        button=f"Drain {node}",
        target=f"/ui/nodes/{quote(node, safe='')}/drain",
        back="/ui/nodes",
        harm=True,
        error=error,
    )
