"""Clients that others wrote for Kafka Connect, as they are: what they do and what they make of the answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cdc_testing.rest_rig import Rest, config
from kafka_connect import KafkaConnect
from kafkaconnect.connect import Connect

from cdc_core.store.job_values import NodeRecord


@pytest.fixture
def given(control: Path) -> dict[str, str]:
    return config(control, **{"tasks.max": "1"})


def test_kafka_connect_py(rest: Rest, given: dict[str, str], one: NodeRecord) -> None:
    client = KafkaConnect(url=rest.url)
    assert client.get_cluster_info()["kafka_cluster_id"]
    client.create_connector({"name": "orders", "config": given})
    assert client.list_connectors() == ["orders"]
    assert client.list_connectors(expand="info")["orders"]["info"]["config"]["source"] == given["source"]
    assert client.list_connectors(state="unassigned", pattern="ord.*") == ["orders"]
    rest.store.claims.adopt("orders", one)
    assert client.get_connector_status("orders")["connector"]["state"] == "RUNNING"
    client.pause_connector("orders")
    rest.store.claims.settle("orders", one, "stopped")
    assert client.list_connectors(state="PAUSED") == ["orders"]
    client.resume_connector("orders")
    rest.store.claims.adopt("orders", one)
    found = client.restart_connector("orders", include_tasks=True, only_failed=False)
    assert found["connector"]["state"] == "RESTARTING"
    rest.store.claims.settle("orders", one, "stopped")
    assert client.restart_connector("orders") is None
    client.update_connector("orders", {**given, "keys": "3"})
    assert client.get_connector_config("orders")["keys"] == "3"
    assert client.get_connector("orders")["tasks"] == client.list_connectors("info")["orders"]["info"]["tasks"]
    (task,) = client.list_connector_tasks("orders")
    assert client.get_connector_task_status("orders", task["id"]["task"])["id"] == 0
    client.restart_connector_task("orders", 0)
    assert client.list_connector_topics("orders")["orders"]["topics"] == ["counter"]
    (plugin,) = client.list_connector_plugins()
    assert client.validate_connector_config(plugin["class"], {**given, "name": "orders"})["error_count"] == 0
    client.stop_connector("orders")
    assert client.get_connector_status("orders")["connector"]["state"] == "STOPPED"
    client.delete_connector("orders")
    assert client.list_connectors() == []


def test_kafkaconnect(rest: Rest, given: dict[str, str], one: NodeRecord) -> None:
    client = Connect(connect_url=rest.url)
    wanted = {**given, "name": "orders"}
    wrong = json.loads(client.validate_and_create("orders", json.dumps({**wanted, "keys": "many"})))
    assert wrong["error_count"] == 1
    assert json.loads(client.validate_and_create("orders", json.dumps(wanted)))["name"] == "orders"
    assert json.loads(client.list()) == ["orders"]
    assert json.loads(client.config("orders"))["source"] == given["source"]
    assert json.loads(client.info("orders"))["type"] == "source"
    rest.store.claims.adopt("orders", one)
    assert json.loads(client.status("orders"))["connector"]["worker_id"] == "one"
    assert client.pause("orders") == ""
    rest.store.claims.settle("orders", one, "stopped")
    assert json.loads(client.status("orders"))["connector"]["state"] == "PAUSED"
    assert client.resume("orders") == ""
    assert client.restart("orders") == ""
    assert json.loads(client.create_or_update("orders", json.dumps({**wanted, "keys": "3"})))["config"]["keys"] == "3"
    assert json.loads(client.tasks("orders"))[0]["id"]["connector"] == "orders"
    assert json.loads(client.topics("orders"))["orders"]["topics"] == ["counter"]
    assert json.loads(client.plugins())[0]["type"] == "source"
    assert client.remove("orders") == ""
    assert json.loads(client.list()) == []
