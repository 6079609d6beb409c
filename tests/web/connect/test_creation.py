"""Creating connectors and reading them, and requests that are refused."""

from __future__ import annotations

import gzip
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cdc_testing.rest_rig import Rest, config
from cdc_testing.scripted import Script

from cdc_core.store.job_values import NodeRecord


def test_what_is_created_is_read_back_one_to_one(rest: Rest, control: Path) -> None:
    given = {**config(control, rows_per_step="7"), "spark.executor.memory": "2g", "total": 99, "resolved": True}
    created = rest.create("orders", given)
    config_ = {key: str(value).lower() if value is True else str(value) for key, value in given.items()}
    assert created == {"name": "orders", "config": {**config_, "name": "orders"}, "tasks": [], "type": "source"}
    assert rest.get("/connectors/orders/config") == created["config"]
    assert rest.get("/connectors/orders/") == {**created, "tasks": [{"connector": "orders", "task": 0}]}
    assert rest.get("/connectors") == ["orders"]
    (task,) = rest.get("/connectors/orders/tasks")
    assert task["id"] == {"connector": "orders", "task": 0}
    expanded = rest.get("/connectors", params={"expand": ["status", "info"]})
    assert expanded["orders"]["info"]["config"] == created["config"]
    assert expanded["orders"]["status"]["tasks"][0]["state"] == "UNASSIGNED"
    assert rest.get("/connectors?expand=nothing") == {"orders": {}}


def test_the_location_of_a_new_connector_is_told(rest: Rest, control: Path) -> None:
    answer = rest.client.put("/connectors/orders/config", json=config(control))
    assert (answer.status_code, answer.headers["location"]) == (201, f"{rest.url}/connectors/orders")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"name": "a"}, 400, "'config'"),
        ({"config": {}}, 400, "Connector config contains no connector type"),
        ({"name": "a", "config": {"connector.class": "FileStreamSink"}}, 400, "Failed to find any class"),
        ({"name": "a", "config": {"connector.class": "Changefeed", "name": "b"}}, 400, "doesn't match connector name"),
        ({"name": "a", "config": {"connector.class": "Changefeed", "x": {"y": 1}}}, 400, "'x' must be a string"),
        ({"name": "a", "config": {"connector.class": "Changefeed"}, "more": 1}, 400, "unknown field 'more'"),
        ({"name": "a", "config": {"connector.class": "Changefeed"}, "initial_state": "X"}, 400, "initial_state"),
        ({"name": "a", "config": {"connector.class": "Changefeed", "source": None}}, 400, "Null value can not be"),
        ([1], 400, "must be a JSON object"),
    ],
)
def test_a_wrong_request_is_refused(rest: Rest, body: object, status: int, message: str) -> None:
    assert message in rest.message("POST", "/connectors", status=status, json=body)
    assert rest.get("/connectors") == []


@pytest.mark.parametrize(
    ("content", "type_", "status"),
    [
        (b"{", "application/json", 400),
        (b"{}", "text/plain", 415),
        (b'{"name": "\\ud800", "config": {}}', "application/json", 400),
        (b'{"name": NaN}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'{"name": "a\\u0000", "config": {}}', "application/json", 400),
        (b"1" * 5000, "application/json", 400),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(rest: Rest, content: bytes, type_: str, status: int) -> None:
    rest.message("POST", "/connectors", status=status, content=content, headers={"Content-Type": type_})


def test_all_errors_are_in_the_answer_with_the_text_that_clients_know(rest: Rest, control: Path) -> None:
    wrong = {**config(control), "rows_per_step": "many", "nonsense": "1", "tasks.max": "0"}
    text = rest.message("POST", "/connectors", status=400, json={"name": "orders", "config": wrong})
    assert text.startswith("Connector configuration is invalid and contains the following 3 error(s):\n")
    for part in ("rows_per_step", "nonsense", "Value must be at least 1", "`/connector-plugins/{connectorType}/config"):
        assert part in text


def test_a_number_keeps_its_digits_and_a_byte_order_mark_is_no_text(rest: Rest, control: Path) -> None:
    number = "1701102296662969433.0000000001"
    body = json.dumps(config(control, metrics_label=number)).replace(f'"{number}"', number)
    more = {"content": body.encode("utf-8-sig"), "headers": {"Content-Type": "application/json"}}
    created = rest.ask("PUT", "/connectors/orders/config", status=201, **more)
    assert created["config"]["metrics_label"] == number


def test_a_body_that_is_compressed_is_refused(rest: Rest, control: Path) -> None:
    body = gzip.compress(json.dumps(config(control)).encode())
    more = {"content": body, "headers": {"Content-Type": "application/json", "Content-Encoding": "gzip"}}
    assert "'Content-Encoding: gzip'" in rest.message("PUT", "/connectors/orders/config", status=415, **more)


def test_a_source_or_sink_that_refuses_is_found_before_anything_is_created(rest: Rest, control: Path) -> None:
    Script(control).order("check", "ConfigError no such table")
    assert "no such table" in rest.message("PUT", "/connectors/orders/config", status=400, json=config(control))
    Script(control).order("check", "ConfigError no such table")
    Script(control).order("check", "RetryableError no route")
    assert rest.message("PUT", "/connectors/orders/config", status=503, json=config(control)) == "no route"
    rest.ask("PUT", "/connectors/orders/config?check=false", status=201, json=config(control))


def test_an_unknown_connector_is_404_in_connects_words(rest: Rest) -> None:
    for method, path, message in (
        ("GET", "", "Connector nope not found"),
        ("GET", "/config", "Connector nope not found"),
        ("GET", "/status", "No status found for connector nope"),
        ("GET", "/tasks", "Connector nope not found"),
        ("GET", "/tasks/0/status", "No status found for task nope-0"),
        ("GET", "/offsets", "Connector nope not found"),
        ("PUT", "/pause", "Unknown connector nope"),
        ("PUT", "/resume", "Unknown connector nope"),
        ("PUT", "/stop", "Unknown connector nope"),
        ("DELETE", "", "Connector nope not found"),
        ("POST", "/restart", "Unknown connector: nope"),
        ("POST", "/tasks/0/restart", "Unknown connector: nope"),
    ):
        assert rest.message(method, f"/connectors/nope{path}", status=404) == message
    assert rest.get("/connectors/nope/topics") == {"nope": {"topics": []}}
    rest.ask("PATCH", "/connectors/nope/config", status=404, json={"a": "b"})
    answer = rest.client.request("POST", "/connectors/nope/config")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, PATCH, PUT, HEAD")
    rest.ask("GET", "/nonsense", status=404)


def test_of_two_that_create_the_same_one_is_told_409(rest: Rest, control: Path) -> None:
    barrier = threading.Barrier(4)

    def create(_: int) -> int:
        barrier.wait()
        return rest.client.post("/connectors", json={"name": "orders", "config": config(control)}).status_code

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(create, range(4))) == [201, 409, 409, 409]
    body = {"name": "orders", "config": config(control)}
    assert rest.message("POST", "/connectors", status=409, json=body) == "Connector orders already exists"


def test_what_refuses_a_name_that_is_free_for_connectors_is_told(rest: Rest, control: Path) -> None:
    far = {"name": "orders", "config": config(control, execution_locality="region=eu")}
    assert "no node matches execution_locality 'region=eu'" in rest.message("POST", "/connectors", status=400, json=far)
    rest.create("orders", config(control))
    known = rest.store.changefeeds.find("orders")
    assert known is not None
    rest.store.changefeeds.register("gone", known.definition)
    rest.store.handover.give("gone", to="elsewhere", again="cdc create gone --from-state x", owner="ann")
    gone = {"name": "gone", "config": config(control)}
    told = rest.message("POST", "/connectors", status=400, json=gone)
    assert told.endswith("being handed over to elsewhere; repeat `cdc create gone --from-state x`")


@pytest.mark.parametrize(
    ("initial", "expected"), [("paused", "PAUSED"), ("STOPPED", "STOPPED"), ("Running", "RUNNING")]
)
def test_the_initial_state_is_obeyed_from_the_first_moment(
    rest: Rest, control: Path, one: NodeRecord, initial: str, expected: str
) -> None:
    rest.create("orders", config(control), initial_state=initial)
    assert (rest.store.claims.adopt("orders", one) is not None) == (expected == "RUNNING")
    assert rest.state() == expected
    assert len(rest.get("/connectors/orders")["tasks"]) == (expected != "STOPPED")
