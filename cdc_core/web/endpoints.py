"""Everything that a server answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cdc_core.telemetry.metric import Sample
from cdc_core.web.endpoint import Endpoint
from cdc_core.web.metrics_endpoint import metrics_endpoint
from cdc_core.web.page.endpoints import page_endpoints

__all__ = ["all_endpoints"]


def all_endpoints(collect: Callable[[], Iterable[Sample]]) -> list[Endpoint]:
    """Return the endpoints of a server whose metrics *collect* returns."""
    return [metrics_endpoint(collect), *page_endpoints()]
