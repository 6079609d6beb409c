"""Generates the tables of docs/monitoring.md from the list of metrics.

python docs/generate_metrics.py            write them
python docs/generate_metrics.py --check    exit with 1 if they are not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from pages import main, replaced, table

from cdc_core.telemetry.metrics import CHANGEFEED_METRICS, NODE_METRICS, PROCESS_METRICS, Metric

PAGE = Path(__file__).with_name("monitoring.md")
_TABLES = {"changefeeds": CHANGEFEED_METRICS, "nodes": NODE_METRICS, "process": PROCESS_METRICS}


def generated(page: str) -> str:
    """Return *page* with the tables that the code has now."""
    for name, metrics in _TABLES.items():
        page = replaced(page, name, table(["metric", "kind", "labels", "meaning"], map(_row, metrics)))
    return page


def _row(metric: Metric) -> tuple[str, ...]:
    return (f"`{metric.name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.help)


if __name__ == "__main__":
    sys.exit(main([(PAGE, generated(PAGE.read_text()))]))
