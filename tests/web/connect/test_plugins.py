"""The plugins, their keys, and validation; what the worker says of itself."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from cdc_testing.rest_rig import Rest, config
from cdc_testing.scripted import Script


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
    unknown = rest.message("PUT", "/connector-plugins/nope/config/validate", status=400, json={"connector.class": "x"})
    assert unknown.startswith("Failed to find any class that implements Connector and which name matches nope")
    assert "no connector type" in rest.message("PUT", path, status=400, json={})


@pytest.mark.parametrize(
    ("key", "about", "remedy"),
    [
        ("transforms.mask.type", "transforms.mask.type", "; select columns and rows with 'query'"),
        ("key.converter", "key.converter", "; set 'format'"),
        ("metrics_labl", "metrics_labl", "; did you mean 'metrics_label'?"),
        ("RESOLVED", "resolved", "; keep one of them"),
    ],
)
def test_a_key_that_is_wrong_is_told_with_the_remedy(
    rest: Rest, control: Path, key: str, about: str, remedy: str
) -> None:
    given = {**config(control, resolved="1s"), "name": "orders", key: "1s"}
    found = rest.ask("PUT", "/connector-plugins/cdc.Changefeed/config/validate", status=200, json=given)
    wrong = {each["value"]["name"]: each["value"]["errors"] for each in found["configs"] if each["value"]["errors"]}
    assert (wrong.keys(), wrong[about][0].endswith(remedy)) == ({about}, True)


def test_the_root_tells_versions_that_clients_compare(rest: Rest) -> None:
    found = rest.get("/")
    assert tuple(map(int, found["version"].split("."))) >= (3, 7)
    assert {"version", "commit", "kafka_cluster_id"} <= found.keys()
    answer = rest.client.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui")
    assert rest.get("/health")["status"] == "healthy"


def test_loggers_of_this_process_are_read_and_set(rest: Rest) -> None:
    logger = logging.getLogger("cdc_testing.a_logger")
    child = logging.getLogger("cdc_testing.a_logger.child")
    path = "/admin/loggers/cdc_testing.a_logger"
    assert rest.ask("PUT", path, status=200, json={"level": "error"}) == [logger.name, child.name]
    assert rest.ask("PUT", path, status=200, json={"level": "ERROR"}) == []  # nothing has changed
    assert rest.get(path)["level"] == "ERROR"
    assert rest.get("/admin/loggers/")[child.name]["last_modified"] > 0
    assert rest.get("/admin/loggers/root").keys() == {"level", "last_modified"}
    assert "Desired 'level'" in rest.message("PUT", path, status=400, json={})
    assert rest.message("PUT", path, status=404, json={"level": "LOUD"}) == "invalid log level 'LOUD'."
    rest.ask("PUT", f"{path}?scope=cluster", status=400, json={"level": "INFO"})
    assert rest.message("GET", "/admin/loggers/nope", status=404) == "Logger nope not found."
    rest.ask("PUT", "/admin/loggers/nope", status=404, json={"level": "INFO"})
