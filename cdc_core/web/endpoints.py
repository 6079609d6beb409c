"""Everything that a server answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.telemetry.metrics import Sample
from cdc_core.web.connect.endpoints import CONNECT_ENDPOINTS
from cdc_core.web.endpoint import Answer, Endpoint, Refusal, Role
from cdc_core.web.exposition import SampleCollector
from cdc_core.web.openapi import openapi_endpoint
from cdc_core.web.page.endpoints import page_endpoints
from cdc_core.web.v1.endpoints import V1_ENDPOINTS

__all__ = ["all_endpoints", "metrics_endpoint", "ready_endpoint"]


def all_endpoints(
    collect: Callable[[], Iterable[Sample]], problem: Callable[[], str | None] = lambda: None
) -> list[Endpoint]:
    """Return the endpoints of a server whose metrics *collect* returns; *problem* says why it is not ready."""
    found = [*CONNECT_ENDPOINTS, *V1_ENDPOINTS, metrics_endpoint(collect), ready_endpoint(problem)]
    return [*found, openapi_endpoint(found), *page_endpoints()]


def metrics_endpoint(collect: Callable[[], Iterable[Sample]]) -> Endpoint:
    """Return an endpoint that answers with what *collect* returns, which is called in any thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SampleCollector(collect))

    def metrics(request: Request) -> Response:
        encode, media = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": media})

    return Endpoint(
        method="GET",
        path="/metrics",
        role=Role.VIEW,
        handle=metrics,
        summary="Metrics in the text format that Prometheus reads.",
        answers=[Answer(status=200, doc="All metrics.", schema={"type": "string"}, media="text/plain")],
    )


def ready_endpoint(problem: Callable[[], str | None]) -> Endpoint:
    """Return an endpoint that answers 200, or 503 with what *problem* returns, which is called in any thread.

    It is for probes, which have no token.
    """

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
