"""What a node answers while it starts, runs a changefeed, and leaves."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from pathlib import Path

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.java_process import free_port
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
        assert f"this server is at http://127.0.0.1:{port}" in node.log()
        assert not [token for token in TOKENS.values() if token in node.log()]
    with socket.socket() as gone:
        assert gone.connect_ex(("127.0.0.1", port)) != 0
