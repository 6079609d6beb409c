"""A job that a statement creates is run by a node, and ends."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.documented_role import documented
from cdc_testing.fixtures import fresh_database
from cdc_testing.nodes import Nodes

from cdc_core.cli.main import main

pytestmark = pytest.mark.slow


def test_a_node_runs_what_a_statement_creates(
    postgres_server: EmbeddedPostgres, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source").write_text(documented(database))

    def sql(store: str, text: str) -> dict[str, str]:
        source = f"${{file:{tmp_path}/source}}"
        assert main(["sql", "--store", store, "--source", source, "--format", "json", text]) == 0
        [row] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return dict(row)

    with (
        psycopg.connect(database, autocommit=True) as tables,
        fresh_database(postgres_server) as store,
        Nodes(tmp_path / "nodes", store, spark=False) as nodes,
    ):
        tables.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        tables.execute("INSERT INTO orders VALUES (1), (2)")
        nodes.start("one")
        create = f"CREATE CHANGEFEED FOR orders INTO 'file://{tmp_path}/out' WITH initial_scan = 'only'"
        assert sql(store, create) == {"job_id": "orders"}
        nodes.until("orders", "succeeded")
        job, full = sql(store, "SHOW CHANGEFEED JOB 'orders'"), f"{tables.info.dbname}.public.orders"
        assert (job["status"], job["full_table_names"], job["error"]) == ("succeeded", full, None)
        assert tables.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)
    lines = [line for file in (tmp_path / "out").rglob("*.ndjson") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["after"]["id"] for line in lines) == [1, 2]
