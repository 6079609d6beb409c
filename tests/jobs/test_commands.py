"""What commands make, nodes run: the job of a statement, the runs of a schedule, and the progress of a `cdc run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cdc_testing.documented_role import documented
from cdc_testing.files import delivered
from cdc_testing.nodes import Nodes
from cdc_testing.postgres import Sql, clock

from cdc_core.cli.main import main

pytestmark = pytest.mark.slow

TOML = """
[changefeed.orders]
source = "${{file:{directory}/source}}"
tables = ["public.orders"]
sink = "file://{directory}/out"
[changefeed.orders.options]
resolved = {resolved}
min_checkpoint_frequency = "0s"
"""
SLOTS = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"


@pytest.fixture
def orders(sql: Sql, database: str, tmp_path: Path) -> Sql:
    """A connection to a source whose table has two rows, and the file that refers to it."""
    (tmp_path / "source").write_text(documented(database))
    sql.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    sql.execute("INSERT INTO orders VALUES (1), (2)")
    return sql


def ids(directory: Path) -> list[int]:
    return sorted(row["after"]["id"] for row in delivered(directory / "out", "orders"))


def test_a_node_runs_what_a_statement_creates(
    nodes: Nodes, orders: Sql, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(text: str) -> dict[str, str]:
        source = f"${{file:{tmp_path}/source}}"
        assert main(["sql", "--store", nodes.url, "--source", source, "--format", "json", text]) == 0
        [row] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return dict(row)

    nodes.start("one")
    create = f"CREATE CHANGEFEED FOR orders INTO 'file://{tmp_path}/out' WITH initial_scan = 'only'"
    assert run(create) == {"job_id": "orders"}
    nodes.until("orders", "succeeded")
    job, full = run("SHOW CHANGEFEED JOB 'orders'"), f"{orders.info.dbname}.public.orders"
    assert (job["status"], job["full_table_names"], job["error"]) == ("succeeded", full, None)
    assert orders.execute(SLOTS).fetchall() == []
    assert ids(tmp_path) == [1, 2]


def test_each_run_of_a_schedule_scans_the_table_and_succeeds(
    nodes: Nodes, orders: Sql, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(TOML.format(directory=tmp_path, resolved="false"))
    nodes.start("one")
    command = ["schedule", "create", "hourly", str(file), "--cron", "@hourly", "--first-run", "now"]
    assert main([*command, "--store", nodes.url]) == 0, capsys.readouterr().err
    nodes.eventually("a run begins", lambda: bool(nodes.store.jobs.all()))
    [job] = nodes.store.jobs.all()
    assert job.name.startswith("hourly-20")
    nodes.until(job.name, "succeeded")
    nodes.eventually("its end is noticed", lambda: nodes.store.schedules.find("hourly").runs == [])
    assert orders.execute(SLOTS).fetchall() == []
    assert ids(tmp_path) == [1, 2]


def test_every_row_arrives_once_when_the_progress_of_a_run_moves_to_a_job(
    nodes: Nodes, orders: Sql, database: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(TOML.format(directory=tmp_path, resolved='"0s"'))
    subprocess.run(
        [sys.executable, "-m", "cdc_testing.thread_nodes", "run", str(file), "--once"],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    orders.execute("INSERT INTO orders SELECT generate_series(11, 20)")
    assert main(["create", str(file), "--store", nodes.url, "--from-state"]) == 0
    assert main(["run", str(file)]) == 2
    nodes.begin("one")
    orders.execute("INSERT INTO orders SELECT generate_series(21, 30)")
    end = clock(database)
    nodes.eventually("all rows", lambda: nodes.high_water("orders") >= end)
    assert len(orders.execute(SLOTS).fetchall()) == 1
    assert ids(tmp_path) == [1, 2, *range(11, 31)]
