"""Kafka Connect's dialect: its statuses, bodies and states, over jobs that no node or a scripted one runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cdc_testing.rest_rig import ENVIRON, Rest, config, serving_rest
from cdc_testing.scripted import Script
from cdc_testing.stored import node, progress

from cdc_core.store.job_values import NodeRecord
from cdc_core.store.values import ChangefeedRecord


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    with serving_rest(tmp_path / "store") as rest:
        yield rest


@pytest.fixture
def control(tmp_path: Path) -> Path:
    (tmp_path / "control").mkdir()
    return tmp_path / "control"


@pytest.fixture
def one(rest: Rest) -> NodeRecord:
    return rest.store.join(node("one"), lease_s=600)


def adopted(rest: Rest, one: NodeRecord, name: str = "orders") -> None:
    assert rest.store.adopt(name, one) is not None


def ended(rest: Rest, one: NodeRecord, name: str) -> None:
    adopted(rest, one, name)
    rest.store.settle(name, one, "failed", "no")
    rest.store.settle(name, one, "reverted")


def state(rest: Rest, name: str = "orders") -> str:
    found: str = rest.get(f"/connectors/{name}/status")["connector"]["state"]
    return found


def test_the_root_tells_versions_that_clients_compare(rest: Rest) -> None:
    found = rest.get("/")
    assert tuple(map(int, found["version"].split("."))) >= (3, 7)
    assert {"version", "commit", "kafka_cluster_id"} <= found.keys()
    answer = rest.client.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui")
    assert rest.get("/health")["status"] == "healthy"


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
        ({"name": "a", "config": {"connector.class": "Changefeed", "x": {"y": 1}}}, 400, "'x' must be a text"),
        ({"name": "a", "config": {"connector.class": "Changefeed"}, "more": 1}, 400, "'more' is not known"),
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


@pytest.mark.parametrize(
    ("initial", "expected"), [("paused", "PAUSED"), ("STOPPED", "STOPPED"), ("Running", "RUNNING")]
)
def test_the_initial_state_is_obeyed_from_the_first_moment(
    rest: Rest, control: Path, one: NodeRecord, initial: str, expected: str
) -> None:
    rest.create("orders", config(control), initial_state=initial)
    assert (rest.store.adopt("orders", one) is not None) == (expected == "RUNNING")
    assert state(rest) == expected
    assert len(rest.get("/connectors/orders")["tasks"]) == (expected != "STOPPED")


def test_pause_resume_and_stop_may_come_twice(rest: Rest, control: Path, one: NodeRecord) -> None:
    rest.create("orders", config(control))
    adopted(rest, one)
    assert rest.get("/connectors/orders/status")["connector"]["worker_id"] == "one"
    for _ in range(2):
        rest.ask("PUT", "/connectors/orders/pause", status=202)
    assert state(rest) == "RUNNING"
    rest.store.settle("orders", one, "stopped")
    assert state(rest) == "PAUSED"
    for _ in range(2):
        rest.ask("PUT", "/connectors/orders/stop", status=204)
    assert rest.get("/connectors/orders/status")["tasks"] == []
    for _ in range(2):
        rest.ask("PUT", "/connectors/orders/resume", status=202)
    adopted(rest, one)
    assert state(rest) == "RUNNING"


def test_a_restart_says_what_is_restarted(rest: Rest, control: Path, one: NodeRecord) -> None:
    rest.create("orders", config(control))
    adopted(rest, one)
    assert rest.ask("POST", "/connectors/orders/restart", status=204) is None
    assert state(rest) == "RESTARTING"
    assert rest.store.settle("orders", one, "stopped") == "running"
    adopted(rest, one)
    nothing = rest.ask("POST", "/connectors/orders/restart?includeTasks=True&onlyFailed=True", status=202)
    assert nothing["connector"]["state"] == "RUNNING"
    found = rest.ask("POST", "/connectors/orders/restart?includeTasks=True&onlyFailed=False", status=202)
    assert (found["connector"]["state"], found["tasks"][0]["state"]) == ("RESTARTING", "RESTARTING")
    rest.ask("POST", "/connectors/orders/tasks/0/restart", status=204)
    assert rest.message("POST", "/connectors/orders/tasks/9/restart", status=404) == "Unknown task: orders-9"


def test_a_connector_that_failed_has_a_trace_and_restarts(rest: Rest, control: Path, one: NodeRecord) -> None:
    rest.create("orders", config(control))
    adopted(rest, one)
    rest.store.settle("orders", one, "paused", "the sink refuses")
    found = rest.get("/connectors/orders/status")
    assert (found["connector"]["state"], found["tasks"][0]["trace"]) == ("FAILED", "the sink refuses")
    rest.ask("PUT", "/connectors/orders/pause", status=202)
    assert state(rest) == "FAILED"
    failed = rest.ask("POST", "/connectors/orders/restart?onlyFailed=true", status=202)
    assert failed["connector"]["state"] == "RESTARTING"
    assert state(rest) == "UNASSIGNED"


def test_a_connector_that_has_ended_takes_no_orders_and_can_be_deleted(
    rest: Rest, control: Path, one: NodeRecord
) -> None:
    rest.create("orders", config(control))
    adopted(rest, one)
    rest.store.settle("orders", one, "failed", "the source has lost history")
    rest.store.settle("orders", one, "reverted")
    assert state(rest) == "FAILED"
    for method, path in (("PUT", "resume"), ("POST", "restart"), ("PUT", "pause"), ("PUT", "stop")):
        assert "has ended (failed)" in rest.message(method, f"/connectors/orders/{path}", status=409)
    rest.ask("PUT", "/connectors/orders/config", status=409, json=config(control))
    rest.ask("DELETE", "/connectors/orders", status=204)
    rest.create("orders", config(control))


def test_what_is_deleted_is_gone_for_clients_and_its_name_is_free_when_the_source_is(
    rest: Rest, control: Path, one: NodeRecord
) -> None:
    rest.create("orders", config(control))
    adopted(rest, one)
    rest.ask("DELETE", "/connectors/orders", status=204)
    assert rest.get("/connectors") == []
    rest.ask("GET", "/connectors/orders/status", status=404)
    text = rest.message("PUT", "/connectors/orders/config", status=409, json=config(control))
    assert "is being deleted" in text
    rest.store.settle("orders", one, "stopped")
    rest.store.settle("orders", one, "reverted")
    rest.create("orders", config(control))


def test_of_two_that_delete_the_same_one_is_told_404(
    rest: Rest, control: Path, one: NodeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel, forget = rest.store.cancel_job, rest.store.forget_ended_job
    monkeypatch.setattr(rest.store, "cancel_job", lambda *given: (cancel(*given), cancel(*given)))
    rest.create("orders", config(control))
    rest.ask("DELETE", "/connectors/orders", status=404)
    monkeypatch.setattr(rest.store, "cancel_job", cancel)
    monkeypatch.setattr(rest.store, "forget_ended_job", lambda name: forget(name) and forget(name))
    rest.create("carts", config(control))
    ended(rest, one, "carts")
    rest.ask("DELETE", "/connectors/carts", status=404)


def test_what_is_created_anew_while_its_name_is_forgotten_is_deleted_too(
    rest: Rest, control: Path, one: NodeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget = rest.store.forget_ended_job
    rest.create("orders", config(control))
    ended(rest, one, "orders")

    def forget_what_another_one_creates(name: str) -> bool:
        assert forget(name)
        rest.create(name, config(control))
        return forget(name)

    monkeypatch.setattr(rest.store, "forget_ended_job", forget_what_another_one_creates)
    rest.ask("DELETE", "/connectors/orders", status=204)
    rest.ask("GET", "/connectors/orders", status=404)


def test_a_configuration_is_changed_when_the_step_is_over_and_read_at_once(
    rest: Rest, control: Path, one: NodeRecord
) -> None:
    rest.create("orders", config(control))
    adopted(rest, one)
    wanted = config(control, rows_per_step="7")
    assert rest.ask("PUT", "/connectors/orders/config", status=200, json=wanted)["config"]["rows_per_step"] == "7"
    assert rest.get("/connectors/orders/config")["rows_per_step"] == "7"
    assert state(rest) == "RESTARTING"
    assert rest.store.settle("orders", one, "stopped") == "running"
    adopted(rest, one)
    rest.ask("PUT", "/connectors/orders/config", status=200, json=wanted)
    assert state(rest) == "RUNNING"  # nothing has changed
    found = rest.ask("PATCH", "/connectors/orders/config", status=200, json={"rows_per_step": None, "keys": 3})
    assert found["config"] == {**config(control, keys="3"), "name": "orders"}


def test_of_two_that_change_a_configuration_at_once_none_is_lost(
    rest: Rest, control: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest.create("orders", config(control))
    find, others = rest.store.find, [config(control, keys="3")]

    def find_before_another_one_changes_it(name: str) -> ChangefeedRecord | None:
        found = find(name)
        if others:
            rest.ask("PUT", "/connectors/orders/config", status=200, json=others.pop())
        return found

    monkeypatch.setattr(rest.store, "find", find_before_another_one_changes_it)
    text = rest.message("PATCH", "/connectors/orders/config", status=409, json={"rows_per_step": 7})
    assert "changed meanwhile" in text
    assert rest.get("/connectors/orders/config") == {**config(control, keys="3"), "name": "orders"}


@pytest.mark.parametrize("begun", [False, True])
def test_a_connector_with_a_reference_that_stands_for_nothing_any_more_is_repaired(
    tmp_path: Path, control: Path, begun: bool
) -> None:
    with serving_rest(tmp_path / "store", OLD="5") as rest:
        rest.create("orders", config(control, rows_per_step="${OLD}"))
        if begun:
            adopted(rest, rest.store.join(node("one"), lease_s=600))
            rest.store.save("orders", 1, progress(50))
    with serving_rest(tmp_path / "store") as rest:
        rest.ask("PATCH", "/connectors/orders/config", status=200, json={"rows_per_step": "7"})


@pytest.mark.parametrize("order", ["pause", "stop"])
def test_a_configuration_undoes_neither_a_pause_nor_a_stop(
    rest: Rest, control: Path, one: NodeRecord, order: str
) -> None:
    rest.create("orders", config(control))
    adopted(rest, one)
    rest.ask("PUT", f"/connectors/orders/{order}", status=202 if order == "pause" else 204)
    rest.ask("PUT", "/connectors/orders/config", status=200, json=config(control, keys="3"))
    rest.store.settle("orders", one, "stopped")
    assert state(rest) == ("PAUSED" if order == "pause" else "STOPPED")
    rest.ask("PUT", "/connectors/orders/config", status=200, json=config(control, keys="4"))
    assert state(rest) == ("PAUSED" if order == "pause" else "STOPPED")
    assert rest.get("/connectors/orders/config")["keys"] == "4"


def test_a_configuration_that_is_refused_changes_nothing(rest: Rest, control: Path, one: NodeRecord) -> None:
    rest.create("orders", config(control))
    adopted(rest, one)
    rest.store.save("orders", 1, progress(50))
    before = rest.get("/connectors/orders"), rest.store.find_job("orders"), rest.store.job_events("orders")
    for change in (
        {"rows_per_step": "many"},
        {"source": "counter://elsewhere/shop"},
        {"tables": "others"},
        {"sink": "shelf://x"},
        {"initial_scan": "only"},
        {"nonsense": "x"},
        {"name": "other"},
    ):
        rest.ask("PUT", "/connectors/orders/config", status=400, json={**config(control), **change})
        rest.ask("PATCH", "/connectors/orders/config", status=400, json=change)
    Script(control).order("check", "ConfigError no such table")
    rest.ask("PUT", "/connectors/orders/config", status=400, json=config(control, keys="3"))
    assert before == (rest.get("/connectors/orders"), rest.store.find_job("orders"), rest.store.job_events("orders"))


def test_sections_functions_and_entries_of_options_have_names(rest: Rest, control: Path) -> None:
    given = {
        "connector.class": "cdc.Changefeed",
        "source": "paper://",
        "tables": "orders,public.carts",
        "table.public.carts": '{"columns": {"exclude": ["card"]}, "where": "paid"}',
        "sink": "shelf://x?pin=${PIN}",
        "client.request.timeout": "5",
        "header": "Bearer ${PIN}",
    }
    rest.ask("PUT", "/connectors/orders/config?check=false", status=201, json=given | {"format": "plain"})
    assert rest.get("/connectors/orders/config") == given | {"format": "plain", "name": "orders"}
    known = rest.store.find("orders")
    assert known is not None
    assert known.definition["selections"].keys() == {"public.carts"}


def test_secrets_are_references_masked_and_kept(rest: Rest, control: Path) -> None:
    given = config(control) | {"sink": "shelf://x?pin=${PIN}", "format": "plain", "source": "paper://u:${PW}@h/d"}
    given.pop("control")
    rest.ask("PUT", "/connectors/orders/config?check=false", status=201, json=given)
    masked = given | {"source": "paper://u:***@h/d"}
    rest.ask("PUT", "/connectors/orders/config?check=false", status=200, json=masked | {"max_step_rows": "9"})
    assert rest.get("/connectors/orders/config")["source"] == given["source"]
    for wrong in ({"source": "paper://u:***@elsewhere/d"}, {"header": "***"}):
        text = rest.message("PUT", "/connectors/fresh/config", status=400, json={**given, **wrong})
        assert "in place of a secret" in text or "plain text" in text
    literal = rest.client.put("/connectors/fresh/config", json={**given, "source": "paper://u:plain-text-pw@h/d"})
    assert (literal.status_code, "plain-text-pw" in literal.text) == (400, False)
    assert "secret in plain text" in literal.json()["message"]


def test_secrets_of_a_new_configuration_are_masked_in_logs(rest: Rest, control: Path) -> None:
    assert ENVIRON["PW"] not in rest.kept
    rest.ask("PUT", "/connectors/orders/config?check=false", status=201, json=config(control))
    assert ENVIRON["PW"] in rest.kept
    changed = {"source": "counter://reader:${PIN}@host/shop"}
    rest.ask("PATCH", "/connectors/orders/config?check=false", status=200, json=changed)
    assert ENVIRON["PIN"] in rest.kept


@pytest.mark.parametrize(
    "change",
    [
        {"source": "${PW}"},
        {"source": "paper://${PW}"},
        {"tables": "${PW},${PW}"},
        {"format": "${PIN}"},
        {"sink": "${PIN}://x"},
        {"max_step_rows": "${PW}"},
        {"${PW}": "x"},
        {"resolved": "'${PW}'"},
        {"execution_locality": "${PW}"},
        {"topic": "{${PW}}"},
        {"source": "nosuch://u:lit%2Feral@h/d?password=liter'al"},
        {"api_token": 'lit"eral', "nonsense": "${PIN}"},
    ],
)
def test_no_answer_holds_what_a_reference_stands_for(rest: Rest, control: Path, change: dict[str, str]) -> None:
    given = {**config(control), "name": "orders", **change}
    for method, path in (
        ("PUT", "/connectors/orders/config"),
        ("PUT", "/connector-plugins/cdc.Changefeed/config/validate"),
    ):
        text = rest.client.request(method, path, json=given).text
        for secret in (*ENVIRON.values(), "lit%2Feral", "lit/eral", "liter'al", 'lit\\"eral'):
            assert secret not in text


def test_topics_are_those_of_the_definition_or_those_that_rows_were_given(
    rest: Rest, control: Path, one: NodeRecord
) -> None:
    rest.create("orders", config(control, topic="{schema}.{table}"))
    assert rest.get("/connectors/orders/topics") == {"orders": {"topics": ["public.counter"]}}
    adopted(rest, one)
    rest.store.add_topic("orders", 1, "by-row", most=9)
    assert rest.get("/connectors/orders/topics") == {"orders": {"topics": ["by-row"]}}
    text = rest.message("PUT", "/connectors/orders/topics/reset", status=403)
    assert text == "Topic tracking reset is disabled."


def test_offsets_are_read_always_and_changed_when_stopped(rest: Rest, control: Path, one: NodeRecord) -> None:
    rest.create("orders", config(control))
    assert rest.get("/connectors/orders/offsets") == {"offsets": []}
    adopted(rest, one)
    rest.store.save("orders", 1, progress(50))
    (offset,) = rest.get("/connectors/orders/offsets")["offsets"]
    assert offset["partition"] == {"source": "counter://reader:***@host/shop"}
    assert offset["offset"]["token"] == {"lsn": 50}
    text = rest.message("DELETE", "/connectors/orders/offsets", status=400)
    assert text.startswith("Connectors must be in the STOPPED state")
    rest.ask("PUT", "/connectors/orders/stop", status=204)
    rest.store.settle("orders", one, "stopped")
    empty = rest.message("PATCH", "/connectors/orders/offsets", status=400, json={"offsets": []})
    assert empty == "Partitions / offsets need to be provided for an alter offsets request"
    for wrong in (
        {**offset, "offset": {"token": {"lsn": 9}}},
        {**offset, "partition": {"source": "other"}},
        {"partition": offset["partition"]},
        {"offset": None},
        7,
    ):
        rest.ask("PATCH", "/connectors/orders/offsets", status=400, json={"offsets": [wrong]})
    done = rest.ask("PATCH", "/connectors/orders/offsets", status=200, json={"offsets": [offset]})
    assert done == {"message": "The offsets for this connector have been altered successfully"}
    assert rest.store.waiting_rescans("orders", new_slot=True) == []
    Script(control).order("check", "ConfigError the source is another one")
    assert "is another one" in rest.message("DELETE", "/connectors/orders/offsets", status=400)
    assert rest.store.waiting_rescans("orders", new_slot=True) == []
    done = rest.ask("DELETE", "/connectors/orders/offsets", status=200)
    assert done == {"message": "The offsets for this connector have been reset successfully"}
    anew = {"offsets": [{**offset, "offset": None}]}
    rest.ask("PATCH", "/connectors/orders/offsets", status=200, json=anew)
    assert len(rest.store.waiting_rescans("orders", new_slot=True)) == 2


def test_plugins_are_listed_and_described(rest: Rest) -> None:
    (only,) = rest.get("/connector-plugins")
    assert (only["class"], only["type"]) == ("cdc.Changefeed", "source")
    every = {each["class"] for each in rest.get("/connector-plugins/?connectorsOnly=false")}
    assert {"cdc.Changefeed", "rangefeed.counter", "encoder.plain", "sink.journal"} <= every
    keys = {key["name"]: key for key in rest.get("/connector-plugins/Changefeed/config")}
    assert keys["name"]["required"]
    assert keys["tasks.max"]["default_value"] == "1"
    assert keys["resolved"]["documentation"]
    assert keys["updated"]["type"] == "BOOLEAN"
    assert all(key["order"] == key["order_in_group"] for key in keys.values())
    (pin,) = [key for key in rest.get("/connector-plugins/sink.shelf/config") if key["name"] == "pin"]
    assert pin["type"] == "PASSWORD"
    rest.ask("GET", "/connector-plugins/sink.nope/config", status=404)
    rest.ask("GET", "/connector-plugins/FileStreamSink/config", status=404)


def test_validation_tells_every_key_and_connects_to_nothing(rest: Rest, control: Path) -> None:
    Script(control).order("check", "ConfigError no such table")
    path = "/connector-plugins/cdc.Changefeed/config/validate"
    good = rest.ask("PUT", path, status=200, json={**config(control), "name": "orders"})
    assert good["error_count"] == 0
    values = {each["value"]["name"]: each for each in good["configs"]}
    assert values["envelope"]["value"]["recommended_values"] == [
        "wrapped",
        "bare",
        "key_only",
        "row",
        "enriched",
        "cloudevents",
    ]
    assert values["rows_per_step"]["value"]["value"] == "1000"
    assert values["control"]["definition"]["required"]
    assert "Rangefeed 'counter'" in good["groups"]
    # what some clients ask of every plugin
    little = rest.ask("PUT", path, status=200, json={"connector.class": "cdc.Changefeed", "topics": "getPlugins"})
    wrong = {each["value"]["name"]: each for each in little["configs"] if each["value"]["errors"]}
    assert {"name", "source", "sink", "tables"} <= wrong.keys()
    assert all(each["definition"] is not None for each in wrong.values())
    assert little["error_count"] == sum(len(each["value"]["errors"]) for each in little["configs"])
    other = rest.message("PUT", path, status=400, json={"connector.class": "FileStreamSink"})
    assert other == "Included connector type FileStreamSink does not match request type cdc.Changefeed"
    assert "no connector type" in rest.message("PUT", path, status=400, json={})


def test_loggers_of_this_process_are_read_and_set(rest: Rest) -> None:
    import logging

    logger = logging.getLogger("cdc_testing.a_logger")
    child = logging.getLogger("cdc_testing.a_logger.child")
    try:
        path = "/admin/loggers/cdc_testing.a_logger"
        assert rest.ask("PUT", path, status=200, json={"level": "warn"}) == [logger.name, child.name]
        assert rest.get(path)["level"] == "WARN"
        assert rest.get("/admin/loggers/")[child.name]["last_modified"] > 0
        assert rest.get("/admin/loggers/root").keys() == {"level", "last_modified"}
        assert "Desired 'level'" in rest.message("PUT", path, status=400, json={})
        assert rest.message("PUT", path, status=404, json={"level": "LOUD"}) == "invalid log level 'LOUD'."
        rest.ask("PUT", f"{path}?scope=cluster", status=400, json={"level": "INFO"})
        assert rest.message("GET", "/admin/loggers/nope", status=404) == "Logger nope not found."
        rest.ask("PUT", "/admin/loggers/nope", status=404, json={"level": "INFO"})
    finally:
        logger.setLevel(logging.NOTSET)
        child.setLevel(logging.NOTSET)
