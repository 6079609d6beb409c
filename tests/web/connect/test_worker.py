"""The server itself: versions, health and loggers."""

from __future__ import annotations

import logging

from cdc_testing.rest_rig import Rest


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
