"""What all views of one server share: its deployment, and the history of its changefeeds."""

from __future__ import annotations

import threading

from starlette.requests import Request

from cdc_core.web.deployment import Deployment, deployment_of
from cdc_core.web.page.history import History

__all__ = ["Site", "site_of"]

_lock = threading.Lock()


class Site:
    """One server's page."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.history = History(deployment.changefeeds)


def site_of(request: Request) -> Site:
    """Return the page of the server that got *request*: made with the first request."""
    state = request.app.state
    with _lock:
        found: Site | None = getattr(state, "page", None)
        if found is None:
            found = state.page = Site(deployment_of(request))
    return found
