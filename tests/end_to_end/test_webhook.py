"""PostgreSQL to a webhook over HTTPS: every kind of fault, a killed worker, driver and endpoint."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.bank import TABLES, Bank, assert_faithful_messages, open_bank
from cdc_testing.cloud_events import of_request
from cdc_testing.fixtures import Counts
from cdc_testing.postgres import clock
from cdc_testing.runs import Feed
from cdc_testing.webhook_server import WebhookServer
from cloudevents.core.base import BaseCloudEvent

from cdc_core import StoredMessage, Timestamp

pytestmark = pytest.mark.slow

FAULTS: list[dict[str, Any]] = [
    {"share": 0.02, "status": 429, "headers": {"retry-after": "0"}},
    {"share": 0.02, "status": 500},
    {"share": 0.02, "reset": "before"},
    {"share": 0.02, "reset": "after"},
    {"share": 0.02, "hang": True},
    {"share": 0.02, "late_s": 1.6},
]
"""Each applies to a share of requests. With the last one the endpoint accepts rows after the sink has timed out."""


def options(server: WebhookServer, **others: object) -> dict[str, object]:
    config = {"Flush": {"Messages": 20, "Frequency": "1s"}, "Retry": {"Max": 2, "Backoff": "20ms"}}
    return {
        **server.trust,
        "webhook_client_timeout": "800ms",
        "webhook_sink_config": json.dumps(config),
        "retry_backoff": "100ms",
        "max_retry_backoff": "1s",
        **others,
    }


def events(server: WebhookServer, path: str) -> list[BaseCloudEvent]:
    """Return the accepted events, in order."""
    accepted = server.accepted(path)
    return [event for type_, body in accepted for event in of_request({"content-type": type_}, body)]


def last_mark(server: WebhookServer, path: str) -> Timestamp:
    """Return the last accepted mark, which is an array of one event."""
    bodies = (body for body in reversed(server.bodies(path)) if body.startswith(b'[{"data":{"resolved"'))
    return next((Timestamp.parse(json.loads(body)[0]["data"]["resolved"]) for body in bodies), Timestamp())


def test_no_fault_loses_or_reorders_events_or_changes_their_ids(database: str, tmp_path: Path, counts: Counts) -> None:
    chance = random.Random(4)
    open_bank(database, filler=500)
    (tmp_path / "server").mkdir()
    with WebhookServer(tmp_path / "server") as server:
        path = server.new_path()
        server.faults(random=FAULTS, seed=4, slow_s=0.003)
        settings = options(server, envelope="cloudevents", cloudevents_source="https://bank.example.com/eu")

        def wait_for(what: str, *, bodies: int) -> None:
            target = len(server.bodies(path)) + bodies
            feed.until(f"requests after {what}", lambda: len(server.bodies(path)) >= target)

        def occurred(fault: dict[str, Any]) -> int:
            return sum(request["fault"] == fault for request in server.requests(path))

        with Feed(tmp_path / "feed", database, TABLES, sink=server.uri(path), options=settings) as feed:
            feed.start()
            feed.until("the initial scan", lambda: "scan begins at" in feed.log())
            with Bank(database, seed=4, pause_s=0.02) as bank:
                wait_for("the start", bodies=30)
                for number in range(2):
                    if number:
                        feed.until("the end of the initial scan", lambda: last_mark(server, path) > Timestamp())
                        feed.kill_driver()
                        feed.start()
                    else:
                        feed.until("a busy worker", feed.kill_a_worker)
                    wait_for("a death", bodies=chance.randint(5, 20))
                    server.kill()
                    server.start()
                    wait_for("the endpoint's death", bodies=chance.randint(5, 20) + 10 * number)
                feed.until("a fault of every kind", lambda: all(map(occurred, FAULTS)))
            now = clock(database)
            feed.until("the last transaction", lambda: last_mark(server, path) >= now)
            feed.stop()
        arrived = events(server, path)
        data = [json.dumps(event.get_data()) for event in arrived]
        topics = [event.get_data().get("topic") for event in arrived]
        pairs = zip(topics, data, strict=True)
        messages = [StoredMessage(topic=topic, value=value.encode()) for topic, value in pairs]
        found = assert_faithful_messages(messages, database)
        ids = [(event.get_source(), event.get_id()) for event in arrived]
        assert len(set(ids)) == len(set(data)) == len(set(zip(ids, data, strict=True))), "an event has one id"
        requests = server.requests(path)
        assert not [request["shared"] for request in requests if request["shared"]]
        parallel = max(request["in_flight"] for request in requests)
        assert parallel > 1
        counts(
            rows=found.rows,
            repeats=len(ids) - len(set(ids)),
            marks=found.marks,
            cuts=found.cuts,
            transactions=bank.transactions,
            requests=len(requests),
            faults=sum(map(occurred, FAULTS)),
            requests_in_parallel=parallel,
        )
