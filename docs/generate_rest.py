"""Generates the tables of docs/rest.md and docs/kafka-connect.md from the endpoints and connect_differences.py.

python docs/generate_rest.py            write it
python docs/generate_rest.py --check    exit with 1 if it is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from connect_differences import DIFFERENCES
from pages import main, replaced, table

from cdc_core.web.endpoint import Endpoint
from cdc_core.web.endpoints import CONNECT_ENDPOINTS, all_endpoints

REQUESTS = Path(__file__).with_name("rest.md")
COMPARED = Path(__file__).with_name("kafka-connect.md")


def requests_page(page: str) -> str:
    """Return *page* with the tables of requests that the code has now."""
    found = [each for each in all_endpoints(list) if each.answers or each.errors]
    ours = [each for each in found if each not in CONNECT_ENDPOINTS]
    page = replaced(page, "connect", _table(CONNECT_ENDPOINTS))
    return replaced(page, "v1", _table(ours))


def compared_page(page: str) -> str:
    """Return *page* with the table of differences from Kafka Connect."""
    head = ["request", "what", "Kafka Connect", "here", "why"]
    rows = ([each.shown, f"`{each.place}`", each.theirs, each.here, each.why] for each in DIFFERENCES)
    return replaced(page, "differences", table(head, rows))


def _table(endpoints: Iterable[Endpoint]) -> str:
    head = ["request", "role", "what it does", "answers", "errors"]
    return table(head, map(_row, endpoints))


def _row(endpoint: Endpoint) -> list[str]:
    query = [each.name for each in endpoint.parameters]
    shown = f"`{endpoint.method} {endpoint.path}{'?' + '&'.join(query) if query else ''}`"
    answers = ", ".join(str(answer.status) for answer in endpoint.answers) or "—"
    errors = ", ".join(map(str, sorted(endpoint.errors))) or "—"
    return [shown, endpoint.role.name.lower(), endpoint.summary, answers, errors]


if __name__ == "__main__":
    pages = [(REQUESTS, requests_page(REQUESTS.read_text())), (COMPARED, compared_page(COMPARED.read_text()))]
    sys.exit(main(pages))
