"""What a node answers while it starts, runs a changefeed, and leaves."""

from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request
from pathlib import Path

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.documented_role import documented
from cdc_testing.fixtures import fresh_database
from cdc_testing.nodes import FAST, Nodes
from cdc_testing.web_rig import TOKENS, write_tokens

ROWS = 500


def get(port: int, path: str, token: str | None = None) -> tuple[int, str]:
    """Return status and body; status 0 while nothing listens."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers), timeout=60
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def post(port: int, path: str, values: object) -> int:
    """Return the status."""
    body, headers = json.dumps(values).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers), timeout=60
    ) as answer:
        return int(answer.status)


def emitted(text: str) -> float:
    found = re.search(r'^cdc_changefeed_emitted_rows_total\{changefeed="orders"[^}]*\} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.slow
def test_a_node_serves_its_metrics_to_those_who_may_ask(
    postgres_server: EmbeddedPostgres, database: str, tmp_path: Path
) -> None:
    port, open_port = free_port(), free_port()
    tokens = write_tokens(tmp_path / "tokens")
    options = [*FAST, "--listen", f"127.0.0.1:{port}", "--tokens", str(tokens), "--metrics", f"127.0.0.1:{open_port}"]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        connection.execute("INSERT INTO orders SELECT generate_series(1, %s)", [ROWS])
    with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store, spark=False) as nodes:
        nodes.store.open()
        with psycopg.connect(store) as holding:
            holding.execute("LOCK TABLE cdc_nodes IN SHARE MODE")  # no node can join
            node = nodes.begin("one", options=options)
            nodes.eventually("the server answers", lambda: get(port, "/ready")[0] != 0)
            status, body = get(port, "/ready")
            assert (status, "the node has not joined the store" in body) == (503, True)
        nodes.create("orders", database, ["public.orders"], f"file://{tmp_path}/files")
        nodes.await_join("one")
        nodes.eventually("the node is ready", lambda: get(port, "/ready")[0] == 200)
        assert get(port, "/metrics")[0] == 401
        assert get(port, "/metrics", "wrong")[0] == 401
        token = TOKENS["viewer"]
        nodes.eventually("the rows are emitted", lambda: emitted(get(port, "/metrics", token)[1]) == ROWS)
        text = get(port, "/metrics", token)[1]
        assert "cdc_node_joined 1.0" in text
        assert "cdc_node_jobs 1.0" in text
        assert emitted(get(open_port, "/metrics")[1]) == ROWS
        assert get(open_port, "/ready")[0] == 404
        node.terminate()
        assert node.wait() == 0, node.log_tail()
        assert f"serving at http://127.0.0.1:{port}" in node.log()
        assert not [token for token in TOKENS.values() if token in node.log()]
    with socket.socket() as gone:
        assert gone.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.slow
def test_a_job_runs_at_the_node_where_it_was_created_until_others_have_fewer(
    postgres_server: EmbeddedPostgres, database: str, tmp_path: Path
) -> None:
    port, secret = free_port(), tmp_path / "source"
    secret.write_text(documented(database))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    config = {"connector.class": "cdc.Changefeed", "source": f"${{file:{secret}}}", "sink": f"file://{tmp_path}/files"}
    config |= {"tables": "public.orders", "resolved": "0s", "min_checkpoint_frequency": "0s"}
    with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store, spark=False) as nodes:
        nodes.start("two")
        nodes.start("one", options=[*FAST, "--listen", f"127.0.0.1:{port}", "--allowed-paths", str(tmp_path)])
        for name in ("a", "b", "c"):
            assert post(port, "/connectors", {"name": name, "config": config}) == 201
        nodes.eventually("all are adopted", lambda: all(nodes.job(name).started for name in "abc"))
        events = nodes.store.events.read(kinds=["changefeed_adopted"])
        first = {event.changefeed: event.node for event in reversed(events)}
        assert first == dict.fromkeys("abc", "one")
        nodes.eventually("node two gets its share", lambda: "two" in {nodes.job(name).node for name in "abc"})
