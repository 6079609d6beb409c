"""What people confirm before something is done, each on a page of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.errors import ConfigError
from cdc_core.web.endpoint import Endpoints, Role
from cdc_core.web.page.rendering import page, redirect
from cdc_core.web.requests import deployment_of


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
