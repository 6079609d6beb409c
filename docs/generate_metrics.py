"""The tables of docs/monitoring.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pages import replaced, table

from cdc_core.telemetry.metrics import CHANGEFEED_METRICS, NODE_METRICS, PROCESS_METRICS, Metric

PAGE = Path(__file__).with_name("monitoring.md")
_TABLES = {"changefeeds": CHANGEFEED_METRICS, "nodes": NODE_METRICS, "process": PROCESS_METRICS}


def generated() -> Iterator[tuple[Path, str]]:
    """Yield the page with the tables that the code has now."""
    page = PAGE.read_text()
    for name, metrics in _TABLES.items():
        page = replaced(page, name, table(["metric", "kind", "labels", "meaning"], map(_row, metrics)))
    yield PAGE, page


def _row(metric: Metric) -> tuple[str, ...]:
    return (f"`{metric.name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.help)
