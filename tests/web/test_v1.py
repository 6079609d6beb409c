"""What is under /v1: jobs, nodes, dead letters, previews, traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cdc_testing.rest_rig import Rest, config, serving_rest
from cdc_testing.scripted import Script
from cdc_testing.stored import DEFINITION, node, progress

from cdc_core import Timestamp
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.progress import DeadLetter
from cdc_core.store.traced_change import TracedChange


@pytest.fixture
def control(tmp_path: Path) -> Path:
    (tmp_path / "control").mkdir()
    return tmp_path / "control"


@pytest.fixture
def rest(tmp_path: Path, control: Path) -> Iterator[Rest]:
    with serving_rest(tmp_path / "store") as rest:
        rest.create("orders", config(control, total="100", rows_per_step="100"))
        yield rest


@pytest.fixture
def one(rest: Rest) -> NodeRecord:
    """A node that runs the job `orders`."""
    one = rest.store.nodes.join(node("one", "region=eu"), lease_s=600)
    assert rest.store.claims.adopt("orders", one) is not None
    return one


def letter(rest: Rest, key: str) -> None:
    refused = DeadLetter(table="db.public.counter", key=key, updated=Timestamp(7), stage="sink", error="refused")
    rest.store.progress.save("orders", 1, progress(50), dead_letters=[refused])


def test_a_job_is_reported_as_the_command_does(rest: Rest, one: NodeRecord) -> None:
    (found,) = rest.get("/v1/jobs")
    assert (found["name"], found["state"], found["job"]["node"]) == ("orders", "running", "one")
    assert rest.get("/v1/jobs/orders")["job"]["history"][-1]["reason"] == "adopted"
    found = rest.get("/v1/jobs/orders/events")
    assert [event["event"] for event in found] == ["create_changefeed", "create_job", "changefeed_adopted"]
    assert rest.get("/v1/events", params={"after": found[0]["number"], "kind": ["create_job"]}) == [found[1]]
    assert rest.get("/v1/events?limit=1") == [found[-1]]
    assert rest.get("/v1/events?limit=1&after=0") == [found[0]]
    assert "did you mean 'create_job'" in rest.message("GET", "/v1/events?kind=create_jobs", status=400)
    for path in ("", "/events", "/dead-letters", "/preview", "/traces", "/traces/1"):
        assert rest.message("GET", f"/v1/jobs/nope{path}", status=404).startswith("there is no job 'nope'")
    rest.store.changefeeds.register("run", DEFINITION)
    for method, path, instead in (
        ("GET", "", "`cdc show run` shows it"),
        ("POST", "/cancel", "then use `cdc drop run --store DIR|URL`"),
        ("POST", "/dead-letters/replay", "then use `cdc replay-dead-letters run --store DIR|URL`"),
    ):
        assert instead in rest.message(method, f"/v1/jobs/run{path}", status=404)


def test_a_canceled_job_stays_listed_and_says_who_wanted_it(rest: Rest, one: NodeRecord) -> None:
    for wrong in ({"reason": 7}, {"raeson": "no longer needed"}):
        rest.ask("POST", "/v1/jobs/orders/cancel", status=400, json=wrong)
    found = rest.ask("POST", "/v1/jobs/orders/cancel", status=202, json={"reason": "no longer needed"})
    assert (found["state"], found["job"]["reason"]) == ("cancel-requested", "no longer needed")
    rest.ask("GET", "/connectors/orders", status=404)
    assert rest.ask("POST", "/v1/jobs/orders/cancel", status=202)["job"]["reason"] == "no longer needed"
    rest.ask("POST", "/v1/jobs/nope/cancel", status=404)


def test_a_node_is_drained(rest: Rest, one: NodeRecord) -> None:
    (found,) = rest.get("/v1/nodes")
    assert (found["name"], found["state"], found["locality"]) == ("one", "alive", "region=eu")
    assert rest.ask("POST", "/v1/nodes/one/drain", status=202)["state"] == "draining"
    assert rest.get("/v1/nodes/one")["jobs"] == ["orders"]
    rest.ask("GET", "/v1/nodes/two", status=404)
    rest.ask("POST", "/v1/nodes/two/drain", status=404)


def test_dead_letters_are_listed_in_pages_and_discarded_of_a_paused_job(rest: Rest, one: NodeRecord) -> None:
    for key in ("[1]", "[2]", "[3]"):
        letter(rest, key)
    first, second = rest.get("/v1/jobs/orders/dead-letters?limit=2")
    assert (first["key"], first["error"]) == ("[1]", "refused")
    (third,) = rest.get(f"/v1/jobs/orders/dead-letters?after={second['number']}")
    assert third["key"] == "[3]"
    rest.ask("GET", "/v1/jobs/orders/dead-letters?limit=many", status=400)
    path = "/v1/jobs/orders/dead-letters/replay"
    assert "pause it" in rest.message("POST", path, status=409)
    rest.ask("PUT", "/connectors/orders/pause", status=202)
    rest.store.claims.settle("orders", one, "stopped")
    rest.ask("POST", path, status=400, json={"give_up": ["1"]})
    rest.ask("POST", path, status=400, json={"give_up": [999]})
    assert "no option 'dead_letter'" in rest.message("POST", path, status=400)
    numbers = [each["number"] for each in (first, second, third)]
    assert "did you mean 'give_up'" in rest.message("POST", path, status=400, json={"giveup": numbers})
    found = rest.ask("POST", path, status=200, json={"give_up": numbers})
    assert found == {"sent": 0, "kept": [], "missing": 0, "given_up": 3}
    assert rest.get("/v1/jobs/orders/dead-letters") == []


def test_a_preview_that_fails_says_why_without_secrets(rest: Rest, control: Path) -> None:
    rest.ask("GET", "/v1/jobs/orders/preview?rows=0", status=400)
    Script(control).order("check", "ConfigError no such table at reader:hunter2-of-the-source@host")
    text = rest.message("GET", "/v1/jobs/orders/preview?rows=3", status=400)
    assert "no such table" in text
    assert "hunter2" not in text


TRACES = "/v1/jobs/orders/traces"


def test_a_trace_is_asked_for_read_and_ended(rest: Rest, one: NodeRecord) -> None:
    rest.store.progress.save("orders", 1, progress(50))
    asked = {"table": "orders", "key": [7, 1.50, "x"], "rows": 2}
    trace = rest.ask("POST", TRACES, status=201, json=asked | {"timeout": "1m"})
    number = trace["number"]
    given = {"table": "shop.public.orders", "number": number, "until": trace["until"], "active": True, "changes": []}
    assert trace == asked | given
    assert rest.store.events.read("orders")[-1].kind == "trace_requested"
    change = {"table": "db.public.counter", "key": "[7]", "op": "update", "updated": "1000000000.0000000000"}
    change |= {"position": "0/1", "step": 3, "planned": 1.5, "read": 1.75, "marks": False}
    rest.store.traces.put(number, [TracedChange.from_json(change)])
    (found,) = rest.get(f"{TRACES}/{number}")["changes"]
    assert (found["key"], found["stages"], found["complete"]) == ([7], {"planned": 0.5, "read": 0.75}, False)
    rest.store.traces.put(number, [TracedChange.from_json(change | {"nth": nth, "saved": 2.0}) for nth in (0, 1)])
    (trace,) = rest.get(TRACES)
    assert (trace["active"], [each["complete"] for each in trace["changes"]]) == (False, [True, True])
    rest.ask("DELETE", f"{TRACES}/{number}", status=204)
    assert rest.get(TRACES) == []
    for other in (number, 0, "x", "9" * 30):
        rest.ask("GET", f"{TRACES}/{other}", status=404)
        rest.ask("DELETE", f"{TRACES}/{other}", status=404)


AS_JSON = {"content-type": "application/json"}


def test_a_number_in_a_key_keeps_its_digits(rest: Rest, one: NodeRecord) -> None:
    body = b'{"table": "orders", "key": [1.50, 12345678901234567890.1]}'
    answer = rest.client.post(TRACES, content=body, headers=AS_JSON)
    assert (answer.status_code, '"key":[1.50, 12345678901234567890.1],' in answer.text) == (201, True)
    assert [trace.key for trace in rest.store.traces.of("orders")] == ["[1.50, 12345678901234567890.1]"]


def test_no_key_makes_the_traces_unreadable(rest: Rest, one: NodeRecord) -> None:
    body = b'{"table": "orders", "key": [1e400]}'
    assert "must be a list" in rest.message("POST", TRACES, status=400, content=body, headers=AS_JSON)
    assert rest.get(TRACES) == []
    number = rest.store.traces.ask(
        "orders", table="orders", key="[NaN]", most=1, seconds=60
    )  # as before it was refused
    assert [(trace["number"], trace["key"]) for trace in rest.get(TRACES)] == [(number, None)]


def test_a_trace_that_cannot_be_made_is_refused_with_the_reason(rest: Rest, one: NodeRecord) -> None:
    rest.store.progress.save("orders", 1, progress(50))
    for asked, reason in (
        ({"tabel": "counter"}, "did you mean 'table'"),
        ({"table": "ordres"}, "did you mean 'orders'"),
        ({"table": 7}, "must be the name of a table"),
        ({"key": [7]}, "'key' requires 'table'"),
        ({"table": "orders", "key": 7}, "must be a list"),
        ({"table": "orders", "key": [None]}, "must be a list"),
        ({"rows": 101}, "from 1 to 100"),
        ({"rows": True}, "from 1 to 100"),
        ({"timeout": "soon"}, "must be a duration"),
        ({"timeout": "2h"}, "at most 1h"),
        ({"timeout": 60}, "must be a string"),
    ):
        assert reason in rest.message("POST", TRACES, status=400, json=asked), asked
    assert rest.get(TRACES) == []
    for _ in range(10):
        rest.ask("POST", TRACES, status=201)
    assert "wait until one ends, or end one" in rest.message("POST", TRACES, status=409)
