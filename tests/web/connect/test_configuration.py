"""Changing the configuration of a connector."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.rest_rig import Rest, config, serving_rest
from cdc_testing.scripted import Script
from cdc_testing.stored import node, progress

from cdc_core.store.job_values import NodeRecord


def test_a_configuration_is_changed_when_the_step_is_over_and_read_at_once(
    rest: Rest, control: Path, one: NodeRecord
) -> None:
    rest.create("orders", config(control))
    rest.adopted(one)
    wanted = config(control, rows_per_step="7")
    assert rest.ask("PUT", "/connectors/orders/config", status=200, json=wanted)["config"]["rows_per_step"] == "7"
    assert rest.get("/connectors/orders/config")["rows_per_step"] == "7"
    assert rest.state() == "RESTARTING"
    assert rest.store.claims.settle("orders", one, "stopped") == "running"
    rest.adopted(one)
    rest.ask("PUT", "/connectors/orders/config", status=200, json=wanted)
    assert rest.state() == "RUNNING"  # nothing has changed
    found = rest.ask("PATCH", "/connectors/orders/config", status=200, json={"rows_per_step": None, "keys": 3})
    assert found["config"] == {**config(control, keys="3"), "name": "orders"}


@pytest.mark.parametrize("begun", [False, True])
def test_a_connector_with_a_reference_that_stands_for_nothing_any_more_is_repaired(
    tmp_path: Path, control: Path, begun: bool
) -> None:
    with serving_rest(tmp_path / "store", OLD="5") as rest:
        rest.create("orders", config(control, rows_per_step="${OLD}"))
        if begun:
            rest.adopted(rest.store.nodes.join(node("one"), lease_s=600))
            rest.store.progress.save("orders", 1, progress(50))
    with serving_rest(tmp_path / "store") as rest:
        rest.ask("PATCH", "/connectors/orders/config", status=200, json={"rows_per_step": "7"})


def test_a_configuration_that_is_refused_changes_nothing(rest: Rest, control: Path, one: NodeRecord) -> None:
    rest.create("orders", {**config(control), "source": "counter://elsewhere/shop"})
    rest.ask("PUT", "/connectors/orders/config", status=200, json=config(control))  # as it has not begun
    rest.adopted(one)
    rest.store.progress.save("orders", 2, progress(50))
    before = rest.get("/connectors/orders"), rest.store.jobs.find("orders"), rest.store.jobs.events("orders")
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
    assert before == (rest.get("/connectors/orders"), rest.store.jobs.find("orders"), rest.store.jobs.events("orders"))


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
    known = rest.store.changefeeds.find("orders")
    assert known is not None
    assert known.definition["selections"].keys() == {"public.carts"}
