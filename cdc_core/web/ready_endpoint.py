"""The endpoint /ready of a server: for probes, which have no token."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.web.endpoint import Answer, Endpoint, Refusal, Role

__all__ = ["ready_endpoint"]


def ready_endpoint(problem: Callable[[], str | None]) -> Endpoint:
    """Return an endpoint that answers 200, or 503 with what *problem* returns, which is called in any thread."""

    def ready(_request: Request) -> Response:
        found = problem()
        if found is not None:
            raise Refusal(503, found)
        return JSONResponse({"status": "ready"})

    shape = {"type": "object", "properties": {"status": {"const": "ready"}}, "required": ["status"]}
    return Endpoint(
        method="GET",
        path="/ready",
        role=Role.ANYONE,
        handle=ready,
        summary="Whether the store can be read and, of a node, whether it has joined and does not drain.",
        answers=[Answer(status=200, doc="It is ready.", schema=shape)],
        errors=[503],
    )
