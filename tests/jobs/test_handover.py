"""A job continues what a `cdc run` has delivered with another store: nothing is lost, and nothing is read twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.documented_role import documented
from cdc_testing.fixtures import fresh_database
from cdc_testing.nodes import Nodes
from cdc_testing.postgres import clock

from cdc_core.cli.main import main

TOML = """
[changefeed.orders]
source = "${{file:{directory}/source}}"
tables = ["public.items"]
sink = "file://{directory}/out"
[changefeed.orders.options]
resolved = "0s"
min_checkpoint_frequency = "0s"
"""


@pytest.mark.slow
def test_every_row_arrives_once_when_the_progress_of_a_run_moves_to_a_job(
    postgres_server: EmbeddedPostgres, database: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(TOML.format(directory=tmp_path))
    (tmp_path / "source").write_text(documented(database))
    with (
        fresh_database(postgres_server) as store,
        Nodes(tmp_path / "nodes", store, spark=False) as nodes,
        psycopg.connect(database, autocommit=True) as sql,
    ):
        sql.execute("CREATE TABLE items (id int PRIMARY KEY)")
        sql.execute("INSERT INTO items SELECT generate_series(1, 10)")
        subprocess.run(
            [sys.executable, "-m", "cdc_testing.thread_nodes", "run", str(file), "--once"],
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        sql.execute("INSERT INTO items SELECT generate_series(11, 20)")
        assert main(["create", str(file), "--store", store, "--from-state"]) == 0
        assert main(["run", str(file)]) == 2
        nodes.begin("one")
        sql.execute("INSERT INTO items SELECT generate_series(21, 30)")
        end = clock(database)
        nodes.eventually("all rows", lambda: nodes.high_water("orders") >= end)
        assert len(sql.execute("SELECT FROM pg_replication_slots WHERE database = current_database()").fetchall()) == 1
    lines = [line for path in (tmp_path / "out").rglob("*.ndjson") for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["after"]["id"] for line in lines) == list(range(1, 31))
