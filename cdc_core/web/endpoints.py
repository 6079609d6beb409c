"""Everything that a server answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cdc_core.telemetry.metric import Sample
from cdc_core.web.connect.endpoints import CONNECT_ENDPOINTS
from cdc_core.web.endpoint import Endpoint
from cdc_core.web.metrics_endpoint import metrics_endpoint
from cdc_core.web.openapi import openapi_endpoint
from cdc_core.web.page.endpoints import page_endpoints
from cdc_core.web.ready_endpoint import ready_endpoint
from cdc_core.web.v1.endpoints import V1_ENDPOINTS

__all__ = ["all_endpoints"]


def all_endpoints(
    collect: Callable[[], Iterable[Sample]], problem: Callable[[], str | None] = lambda: None
) -> list[Endpoint]:
    """Return the endpoints of a server whose metrics *collect* returns; *problem* says why it is not ready."""
    found = [*CONNECT_ENDPOINTS, *V1_ENDPOINTS, metrics_endpoint(collect), ready_endpoint(problem)]
    return [*found, openapi_endpoint(found), *page_endpoints()]
