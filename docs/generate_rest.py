"""The tables of docs/rest.md and, from `connect_differences`, of docs/kafka-connect.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from connect_differences import DIFFERENCES
from pages import replaced, table

from cdc_core.web.endpoint import Endpoint
from cdc_core.web.endpoints import CONNECT_ENDPOINTS, all_endpoints

REQUESTS = Path(__file__).with_name("rest.md")
COMPARED = Path(__file__).with_name("kafka-connect.md")


def generated() -> Iterator[tuple[Path, str]]:
    """Yield both pages with the tables that the code has now."""
    found = [each for each in all_endpoints(list) if each.answers or each.errors]
    page = replaced(REQUESTS.read_text(), "connect", _table(CONNECT_ENDPOINTS))
    yield REQUESTS, replaced(page, "v1", _table(each for each in found if each not in CONNECT_ENDPOINTS))
    head = ["request", "what", "Kafka Connect", "here", "why"]
    rows = ([each.shown, f"`{each.place}`", each.theirs, each.here, each.why] for each in DIFFERENCES)
    yield COMPARED, replaced(COMPARED.read_text(), "differences", table(head, rows))


def _table(endpoints: Iterable[Endpoint]) -> str:
    head = ["request", "role", "what it does", "responses", "errors"]
    return table(head, map(_row, endpoints))


def _row(endpoint: Endpoint) -> list[str]:
    query = [each.name for each in endpoint.parameters]
    shown = f"`{endpoint.method} {endpoint.path}{'?' + '&'.join(query) if query else ''}`"
    answers = ", ".join(str(answer.status) for answer in endpoint.answers) or "—"
    errors = ", ".join(map(str, sorted(endpoint.errors))) or "—"
    return [shown, endpoint.role.name.lower(), endpoint.summary, answers, errors]
