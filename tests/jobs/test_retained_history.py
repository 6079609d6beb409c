"""What PostgreSQL retains for changefeeds that nothing runs is in the metrics of a node, and of a server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.fixtures import fresh_database
from cdc_testing.nodes import FAST, Nodes
from cdc_testing.runs import eventually

from cdc_core.changefeeds.service import Changefeeds

WRITTEN = 20_000_000
ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def retained(port: int) -> dict[str, float]:
    """Return by changefeed how many bytes of log are retained, as the process at *port* says."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found = re.findall(r'^cdc_changefeed_source_bytes\{changefeed="(\w+)",gauge="retained"[^}]*\} (\S+)$', text, re.M)
    return {name: float(value) for name, value in found}


@pytest.mark.slow
def test_the_log_of_a_paused_job_and_of_a_stopped_run_is_measured(
    postgres_server: EmbeddedPostgres, database: str, tmp_path: Path
) -> None:
    port, other = free_port(), free_port()
    with psycopg.connect(database, autocommit=True) as sql:
        sql.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        sql.execute("INSERT INTO orders VALUES (1)")
        with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store, spark=False) as nodes:
            nodes.start("one", options=[*FAST, "--metrics", f"127.0.0.1:{port}"])
            nodes.create("job", database, ["public.orders"], f"file://{tmp_path}/job")
            nodes.until_delivering("job")
            (tmp_path / "feeds.toml").write_text(
                f'[changefeed.run]\nsource = "${{file:{tmp_path}/nodes/job.source}}"\ntables = ["public.orders"]\n'
                f'sink = "file://{tmp_path}/run"\n'
            )
            module = [sys.executable, "-m", "cdc_testing.thread_nodes"]
            run = subprocess.Popen([*module, "run", str(tmp_path / "feeds.toml"), "--state", store], env=ENVIRON)
            try:
                eventually("the run has delivered", lambda: any((tmp_path / "run").rglob("*.ndjson")))
                run.send_signal(signal.SIGTERM)
                assert run.wait(120) == 0
            finally:
                run.kill()
            Changefeeds(nodes.store).pause("job", "maintenance")
            nodes.until("job", "paused")
            for _ in range(WRITTEN // 1_000_000):
                sql.execute("SELECT pg_logical_emit_message(false, 'test', repeat('x', 1000000))")
            nodes.eventually(
                "the node has measured both",
                lambda: {name for name, size in retained(port).items() if size > WRITTEN} == {"job", "run"},
            )
            nodes["one"].terminate()
            nodes["one"].wait()
            assert " INFO changefeed 'job': scan: reading" in nodes["one"].log(), "lines of plugins name it too"
            sql.execute("SELECT pg_logical_emit_message(false, 'test', repeat('x', %s))", [WRITTEN])
            server = subprocess.Popen(
                [*module, "serve", "--store", store, "--listen", f"127.0.0.1:{other}"], env=ENVIRON
            )
            try:
                eventually("the server listens", lambda: not free(other))
                nodes.eventually(
                    "the server has measured both",
                    lambda: {name for name, size in retained(other).items() if size > 2 * WRITTEN} == {"job", "run"},
                )
            finally:
                server.kill()
                server.wait()


def free(port: int) -> bool:
    try:
        retained(port)
    except OSError:
        return True
    return False
