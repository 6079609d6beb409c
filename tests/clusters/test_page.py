"""docs/clusters.md is true: its cluster runs its changefeed."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.documented_role import documented
from cdc_testing.files import delivered
from cdc_testing.pages import Page
from cdc_testing.spark_cluster import JAVA_OPTIONS

pytestmark = pytest.mark.slow

PAGE = Page("clusters.md")


def test_the_cluster_of_the_page_runs_its_changefeed(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)")
        connection.execute("INSERT INTO orders SELECT n, 'book' FROM generate_series(1, 500) n")
    port = str(free_port())
    toml, *_ = PAGE.blocks("toml")
    places = {
        "7077": port,
        "postgresql://user@127.0.0.1:5432/shop": documented(database),
        "/tmp/orders": str(tmp_path / "out"),
    }
    for place, ours in places.items():
        assert place in toml
        toml = toml.replace(place, ours)
    (tmp_path / "feeds.toml").write_text(toml)
    commands = re.findall(r"^\$ (.*)$", "".join(PAGE.blocks("console")[:2]), re.M)
    *_, kill = commands
    assert kill.startswith("kill")
    script = "\n".join(["set -m", f"trap '{kill}' EXIT", "set -e", *commands[:-1]])
    script = script.replace("7077", port).replace("/tmp/orders", str(tmp_path / "out"))
    done = PAGE.shell(tmp_path, script, JDK_JAVA_OPTIONS=JAVA_OPTIONS)
    assert done.returncode == 0, done.stderr + (tmp_path / "master.log").read_text()
    assert sorted(row["key"][0] for row in delivered(tmp_path / "out", "orders")) == list(range(1, 501))
    assert "Bound MasterWebUI to 127.0.0.1" in (tmp_path / "master.log").read_text()
    assert "Bound WorkerWebUI to 127.0.0.2" in (tmp_path / "worker2.log").read_text()
    assert "accepts drivers from anyone" not in done.stderr
    assert "REST server" not in (tmp_path / "master.log").read_text()
    assert re.search(r"[12] executors? with 2 task slots", done.stderr), done.stderr
