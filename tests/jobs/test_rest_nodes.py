"""A changefeed that is made, watched, changed and deleted over REST alone, while nodes run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_testing.documented_role import documented
from cdc_testing.nodes import Nodes
from cdc_testing.rest_rig import Rest, serving_rest_at

from cdc_core.plugins.host import PluginHost

pytestmark = pytest.mark.slow


def rows(directory: Path) -> set[tuple[int, str]]:
    """Return the keys and values of all messages in the files."""
    texts = [path.read_text() for path in directory.rglob("*.ndjson")]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    return {(each["after"]["id"], each["after"]["v"]) for each in found if each.get("after")}


def test_a_changefeed_lives_by_requests_alone(nodes: Nodes, database: str, tmp_path: Path) -> None:
    files, secret = tmp_path / "files", tmp_path / "source"
    secret.write_text(documented(database))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE things (id int PRIMARY KEY, v text)")
        connection.execute("CREATE TABLE more (id int PRIMARY KEY, v text)")
        connection.execute("INSERT INTO things VALUES (1, 'a')")
        with serving_rest_at(nodes.url, plugins=PluginHost.load(), allowed_paths=[str(tmp_path)]) as rest:
            nodes.start("one")
            wanted = {"connector.class": "cdc.Changefeed", "source": f"${{file:{secret}}}", "sink": f"file://{files}"}
            wanted |= {"tables": "public.things", "resolved": "0s", "min_checkpoint_frequency": "0s"}
            rest.create("things", wanted)
            (first,) = rest.get("/v1/jobs/things/preview?rows=3")
            assert json.loads(first["value"])["after"] == {"id": 1, "v": "a"}
            nodes.eventually("the first row", lambda: rows(files) == {(1, "a")}, look_s=0.3)
            assert status(rest)["connector"] == {**status(rest)["connector"], "state": "RUNNING", "worker_id": "one"}
            connection.execute("INSERT INTO things VALUES (2, 'b')")
            connection.execute("INSERT INTO more VALUES (3, 'c')")
            rest.ask("PATCH", "/connectors/things/config", status=200, json={"tables": "public.things,public.more"})
            nodes.eventually("all rows", lambda: rows(files) == {(1, "a"), (2, "b"), (3, "c")}, look_s=0.3)
            rest.ask("PUT", "/connectors/things/stop", status=204)
            nodes.eventually("the stop", lambda: status(rest)["connector"]["state"] == "STOPPED", look_s=0.3)
            rest.ask("DELETE", "/connectors/things", status=204)
            nodes.until("things", "canceled")
    with psycopg.connect(database) as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
        ).fetchone() == (0,)


def status(rest: Rest) -> Any:
    return rest.get("/connectors/things/status")
