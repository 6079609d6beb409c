"""The endpoint /metrics of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from cdc_core.telemetry.metric import Sample
from cdc_core.web.endpoint import Answer, Endpoint, Role
from cdc_core.web.exposition import SampleCollector

__all__ = ["metrics_endpoint"]


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
