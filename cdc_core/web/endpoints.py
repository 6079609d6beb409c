"""Everything that a server answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.telemetry.metrics import Sample
from cdc_core.web.connect import connectors, lifecycle, plugins, worker
from cdc_core.web.endpoint import TEXT, Answer, Endpoint, Refusal, Role, record
from cdc_core.web.exposition import registry_of
from cdc_core.web.openapi import openapi_endpoint
from cdc_core.web.page import actions, creating, entrance, letters, views
from cdc_core.web.v1 import jobs

CONNECT_ENDPOINTS: tuple[Endpoint, ...] = (
    *worker.ENDPOINTS,
    *connectors.ENDPOINTS,
    *lifecycle.ENDPOINTS,
    *plugins.ENDPOINTS,
)
PAGE_ENDPOINTS: tuple[Endpoint, ...] = (
    *entrance.ENDPOINTS,
    *views.ENDPOINTS,
    *actions.ENDPOINTS,
    *letters.ENDPOINTS,
    *creating.ENDPOINTS,
)
"""They answer with HTML, also about errors of their handlers."""


def all_endpoints(
    collect: Callable[[], Iterable[Sample]], problem: Callable[[], str | None] = lambda: None
) -> list[Endpoint]:
    """Return the endpoints of a server whose metrics *collect* returns; *problem* says why it is not ready."""
    found = [*CONNECT_ENDPOINTS, *jobs.ENDPOINTS, metrics_endpoint(collect), ready_endpoint(problem)]
    return [*found, openapi_endpoint(found), *PAGE_ENDPOINTS]


def metrics_endpoint(collect: Callable[[], Iterable[Sample]]) -> Endpoint:
    """Return an endpoint that answers with what *collect* returns, which is called in any thread."""
    registry = registry_of(collect)

    def metrics(request: Request) -> Response:
        """Metrics in the text format that Prometheus reads."""
        encode, media = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": media})

    answer = Answer(TEXT, "All metrics.", media="text/plain")
    return Endpoint(method="GET", path="/metrics", role=Role.VIEW, handle=metrics, answers=[answer])


def ready_endpoint(problem: Callable[[], str | None]) -> Endpoint:
    """Return an endpoint that answers 200, or 503 with what *problem* returns, which is called in any thread.

    It is for probes, which have no token.
    """

    def ready(_request: Request) -> Response:
        """Whether the store can be read and, for a node, whether it has joined and is not draining."""
        found = problem()
        if found is not None:
            raise Refusal(503, found)
        return JSONResponse({"status": "ready"})

    shape = record("status", status={"const": "ready"})
    return Endpoint(
        method="GET",
        path="/ready",
        role=Role.ANYONE,
        handle=ready,
        answers=[Answer(shape, "It is ready.")],
        errors=[503],
    )
