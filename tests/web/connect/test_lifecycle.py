"""Pausing, stopping, restarting and deleting connectors that no node or a scripted one runs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from cdc_testing.rest_rig import Rest, config

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.store.job_values import NodeRecord


def test_pause_resume_and_stop_may_come_twice(rest: Rest, control: Path, one: NodeRecord) -> None:
    rest.create("orders", config(control))
    rest.adopted(one)
    assert rest.get("/connectors/orders/status")["connector"]["worker_id"] == "one"
    for _ in range(2):
        rest.ask("PUT", "/connectors/orders/pause", status=202)
    assert rest.state() == "RUNNING"
    rest.store.claims.settle("orders", one, "stopped")
    assert rest.state() == "PAUSED"
    for _ in range(2):
        rest.ask("PUT", "/connectors/orders/stop", status=204)
    assert rest.get("/connectors/orders/status")["tasks"] == []
    for _ in range(2):
        rest.ask("PUT", "/connectors/orders/resume", status=202)
    assert rest.store.jobs.events("orders")[-1].reason == "resume requested by local over REST"
    rest.adopted(one)
    assert rest.state() == "RUNNING"


def test_a_restart_says_what_is_restarted(rest: Rest, control: Path, one: NodeRecord) -> None:
    rest.create("orders", config(control))
    rest.adopted(one)
    assert rest.ask("POST", "/connectors/orders/restart", status=204) is None
    assert rest.state() == "RESTARTING"
    assert rest.store.claims.settle("orders", one, "stopped") == "running"
    rest.adopted(one)
    nothing = rest.ask("POST", "/connectors/orders/restart?includeTasks=True&onlyFailed=True", status=202)
    assert nothing["connector"]["state"] == "RUNNING"
    found = rest.ask("POST", "/connectors/orders/restart?includeTasks=True&onlyFailed=False", status=202)
    assert (found["connector"]["state"], found["tasks"][0]["state"]) == ("RESTARTING", "RESTARTING")
    rest.ask("POST", "/connectors/orders/tasks/0/restart", status=204)
    assert rest.message("POST", "/connectors/orders/tasks/9/restart", status=404) == "Unknown task: orders-9"


@pytest.mark.parametrize("ended", ["paused", "failed"])
def test_a_connector_that_failed_has_a_trace_and_restarts(
    rest: Rest, control: Path, one: NodeRecord, ended: Literal["paused", "failed"]
) -> None:
    rest.create("orders", config(control))
    rest.adopted(one)
    rest.store.claims.settle("orders", one, ended, "the sink refuses")
    found = rest.get("/connectors/orders/status")
    assert (found["connector"]["state"], found["tasks"][0]["trace"]) == ("FAILED", "the sink refuses")
    rest.ask("PUT", "/connectors/orders/pause", status=202)
    assert rest.state() == "FAILED"
    failed = rest.ask("POST", "/connectors/orders/restart?onlyFailed=true", status=202)
    assert (failed["connector"]["state"], failed["tasks"][0]["trace"]) == ("RESTARTING", "the sink refuses")
    assert rest.state() == "UNASSIGNED"


def test_what_is_deleted_is_gone_for_clients_and_its_name_is_free_when_the_source_is(
    rest: Rest, control: Path, one: NodeRecord
) -> None:
    rest.create("orders", config(control))
    rest.adopted(one)
    rest.ask("DELETE", "/connectors/orders", status=204)
    assert rest.get("/connectors") == []
    rest.ask("GET", "/connectors/orders/status", status=404)
    text = rest.message("PUT", "/connectors/orders/config", status=409, json=config(control))
    assert "is being deleted" in text
    rest.store.claims.settle("orders", one, "stopped")
    rest.store.claims.settle("orders", one, "reverted")
    rest.create("orders", config(control))


def test_of_two_that_delete_the_same_one_is_told_404(
    rest: Rest, control: Path, one: NodeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = Changefeeds.delete
    twice = lambda changefeeds, *asked: [delete(changefeeds, *asked) for _ in range(2)]  # noqa: E731
    monkeypatch.setattr(Changefeeds, "delete", twice)
    rest.create("carts", config(control))
    rest.ended(one, "carts")
    rest.ask("DELETE", "/connectors/carts", status=404)
