"""A node starts the run of a schedule, and the run ends with the rows of the table."""

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
TOML = """
[changefeed.orders]
source = "${{file:{source}}}"
tables = ["public.orders"]
sink = "file://{files}"
"""


def test_each_run_scans_the_table_and_succeeds(
    postgres_server: EmbeddedPostgres, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(database, autocommit=True) as sql:
        sql.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        sql.execute("INSERT INTO orders SELECT generate_series(1, 5)")
        (tmp_path / "source").write_text(documented(database))
        files, file = tmp_path / "files", tmp_path / "shop.toml"
        file.write_text(TOML.format(source=tmp_path / "source", files=files))
        with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store, spark=False) as nodes:
            nodes.start("one")
            command = ["schedule", "create", "hourly", str(file), "--cron", "@hourly", "--first-run", "now"]
            assert main([*command, "--store", store]) == 0, capsys.readouterr().err
            nodes.eventually("a run begins", lambda: bool(nodes.store.jobs.all()))
            [job] = nodes.store.jobs.all()
            assert job.name.startswith("hourly-20")
            nodes.until(job.name, "succeeded")
            nodes.eventually("its end is noticed", lambda: nodes.store.schedules.find("hourly").runs == [])
            slots = sql.execute("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
            assert slots.fetchall() == []
    lines = [line for path in files.rglob("*.ndjson") for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["after"]["id"] for line in lines) == [1, 2, 3, 4, 5]
