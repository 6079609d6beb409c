"""Topics and offsets of a connector."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cdc_testing.rest_rig import Rest, config
from cdc_testing.scripted import Script
from cdc_testing.stored import progress

from cdc_core.errors import FencedError
from cdc_core.shards.token import ShardedToken, ShardState
from cdc_core.store.job_values import NodeRecord


def test_topics_are_those_of_the_definition_or_those_that_rows_were_given(
    rest: Rest, control: Path, one: NodeRecord
) -> None:
    rest.create("orders", config(control, topic="{schema}.{table}"))
    assert rest.get("/connectors/orders/topics") == {"orders": {"topics": ["public.counter"]}}
    rest.adopted(one)
    rest.store.topics.add("orders", 1, "by-row", most=9)
    assert rest.get("/connectors/orders/topics") == {"orders": {"topics": ["by-row"]}}
    text = rest.message("PUT", "/connectors/orders/topics/reset", status=403)
    assert text == "Topic tracking reset is disabled."


def test_offsets_are_read_always_and_changed_when_stopped(rest: Rest, control: Path, one: NodeRecord) -> None:
    rest.create("orders", config(control))
    assert rest.get("/connectors/orders/offsets") == {"offsets": []}
    rest.adopted(one)
    rest.store.progress.save("orders", 1, progress(50))
    (offset,) = rest.get("/connectors/orders/offsets")["offsets"]
    assert offset["partition"] == {"source": "counter://reader:***@host/shop"}
    assert offset["offset"]["token"] == {"lsn": 50}
    text = rest.message("DELETE", "/connectors/orders/offsets", status=400)
    assert text.startswith("Connectors must be in the STOPPED state")
    rest.ask("PUT", "/connectors/orders/stop", status=204)
    rest.store.claims.settle("orders", one, "stopped")
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
    rest.ask("PATCH", "/connectors/orders/offsets", status=400, json={"offsets": [offset], "more": 1})
    done = rest.ask("PATCH", "/connectors/orders/offsets", status=200, json={"offsets": [offset]})
    assert done == {"message": "The offsets for this connector have been altered successfully"}
    assert rest.store.rescans.waiting("orders", new_slot=True) == []
    Script(control).order("check", "ConfigError the source is another one")
    assert "is another one" in rest.message("DELETE", "/connectors/orders/offsets", status=400)
    assert rest.store.rescans.waiting("orders", new_slot=True) == []
    done = rest.ask("DELETE", "/connectors/orders/offsets", status=200)
    assert done == {"message": "The offsets for this connector have been reset successfully"}
    anew = {"offsets": [{**offset, "offset": None}]}
    rest.ask("PATCH", "/connectors/orders/offsets", status=200, json=anew)
    assert len(rest.store.rescans.waiting("orders", new_slot=True)) == 2


def test_a_stopped_connector_is_moved_as_its_source_allows(rest: Rest, control: Path, one: NodeRecord) -> None:
    rest.create("orders", config(control))
    rest.adopted(one)
    rest.store.progress.save("orders", 1, replace(progress(50), token={"n": 50}))
    rest.ask("PUT", "/connectors/orders/stop", status=204)
    rest.store.claims.settle("orders", one, "stopped")
    path = "/connectors/orders/offsets"
    (offset,) = rest.get(path)["offsets"]

    def moved(wanted: object, status: int) -> str:
        body = {"offsets": [{**offset, "offset": wanted}]}
        return rest.message("PATCH", path, status=status, json=body)

    for wanted in ({"to": 7}, {"to": "now", "token": {}}, {"resolved": None}, {"token": 7}, 7, "now", {}):
        assert moved(wanted, 400).startswith("'offset' must be null (start over), an offset returned by GET, or")
    for wrong in ("tomorrow", "1.9999999999", "9" * 5000 + ".0000000000"):
        assert moved({"to": wrong}, 400) == f"changefeed 'orders' cannot be moved: '{wrong}' is no number"
    Script(control).order("move", "RetryableRangefeedError the source is out of reach")
    assert "out of reach" in moved({"to": "now"}, 409)
    assert rest.get(path)["offsets"] == [offset]
    moved({**offset["offset"], "token": {"n": 70}}, 200)
    (now,) = rest.get(path)["offsets"]
    assert now["offset"] == {"resolved": offset["offset"]["resolved"], "token": {"n": 70}}
    moved(offset["offset"], 200)
    assert rest.get(path)["offsets"] == [offset]
    told = [event.details for event in rest.store.events.read("orders", kinds=["changefeed_moved"])]
    assert told == [
        {"from": "50", "to": "70", "forward": True, "back": False},
        {"from": "70", "to": "50", "forward": False, "back": True},
    ]
    with pytest.raises(FencedError):
        rest.store.progress.save("orders", 1, progress(51))


def test_each_of_several_sources_is_moved_by_its_partition(rest: Rest, control: Path, one: NodeRecord) -> None:
    rest.create("orders", config(control, source='["counter://a/shop", "counter://b/shop"]'))
    rest.adopted(one)
    shards = tuple(ShardState(token={"n": n}) for n in (50, 60))
    rest.store.progress.save("orders", 1, replace(progress(50), token=ShardedToken(shards=shards).to_json()))
    rest.ask("PUT", "/connectors/orders/stop", status=204)
    rest.store.claims.settle("orders", one, "stopped")
    path = "/connectors/orders/offsets"
    first, second = rest.get(path)["offsets"]
    wanted = {**second, "offset": {"token": {"n": 70}}}
    rest.ask("PATCH", path, status=200, json={"offsets": [first, wanted]})
    assert [each["offset"]["token"] for each in rest.get(path)["offsets"]] == [{"n": 50}, {"n": 70}]
    offsets = [{**each, "offset": {"to": "1970-01-01T00:00:00.000000065Z"}} for each in (first, second)]
    rest.ask("PATCH", path, status=200, json={"offsets": offsets})
    assert [each["offset"]["token"] for each in rest.get(path)["offsets"]] == [{"n": 65}, {"n": 65}]
    one_way, both_ways = rest.store.events.read("orders", kinds=["changefeed_moved"])
    assert (one_way.details["forward"], one_way.details["back"]) == (True, False)
    assert (both_ways.details["forward"], both_ways.details["back"]) == (True, True)
    wrong = {**first, "offset": {"to": "tomorrow"}}
    refused = rest.message("PATCH", path, status=400, json={"offsets": [wrong, {**second, "offset": {"to": "now"}}]})
    assert refused == "changefeed 'orders' cannot be moved: source counter://a/shop: 'tomorrow' is no number"
    assert [each["offset"]["token"] for each in rest.get(path)["offsets"]] == [{"n": 65}, {"n": 65}]
