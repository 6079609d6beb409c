"""docs/clusters.md, docs/node-cluster.md and docs/localities.md are true: their clusters run their changefeeds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.documented_role import documented
from cdc_testing.files import delivered
from cdc_testing.pages import Page
from cdc_testing.postgres import Sql
from cdc_testing.spark_cluster import JAVA_OPTIONS
from psycopg.conninfo import conninfo_to_dict

pytestmark = pytest.mark.slow

ORDERS = """
CREATE TABLE orders (id int PRIMARY KEY, item text);
INSERT INTO orders SELECT n, 'book' FROM generate_series(1, 500) n
"""
FEED = """
[changefeed.orders]
source = "{source}"
tables = ["public.orders"]
sink = "file://{directory}/out"
[changefeed.orders.options]
resolved = "1s"
"""
AWS = "region=us-east-2,cloud=aws"


def test_the_cluster_of_the_page_runs_its_changefeed(database: str, sql: Sql, tmp_path: Path) -> None:
    sql.execute(ORDERS)
    page = Page("clusters.md")
    port = str(free_port())
    toml, *_ = page.blocks("toml")
    places = {
        "7077": port,
        "postgresql://user@127.0.0.1:5432/shop": documented(database),
        "/tmp/orders": str(tmp_path / "out"),
    }
    for place, ours in places.items():
        assert place in toml
        toml = toml.replace(place, ours)
    (tmp_path / "feeds.toml").write_text(toml)
    commands = re.findall(r"^\$ (.*)$", "".join(page.blocks("console")[:2]), re.M)
    *_, kill = commands
    assert kill.startswith("kill")
    script = "\n".join(["set -m", f"trap '{kill}' EXIT", "set -e", *commands[:-1]])
    script = script.replace("7077", port).replace("/tmp/orders", str(tmp_path / "out"))
    done = page.shell(tmp_path, script, JDK_JAVA_OPTIONS=JAVA_OPTIONS)
    assert done.returncode == 0, done.stderr + (tmp_path / "master.log").read_text()
    assert sorted(row["key"][0] for row in delivered(tmp_path / "out", "orders")) == list(range(1, 501))
    assert "Bound MasterWebUI to 127.0.0.1" in (tmp_path / "master.log").read_text()
    assert "Bound WorkerWebUI to 127.0.0.2" in (tmp_path / "worker2.log").read_text()
    assert "accepts drivers from anyone" not in done.stderr
    assert "REST server" not in (tmp_path / "master.log").read_text()
    assert re.search(r"[12] executors? with 2 task slots", done.stderr), done.stderr


def test_the_nodes_of_the_page_run_its_changefeed_together(database: str, sql: Sql, tmp_path: Path) -> None:
    sql.execute(ORDERS)
    page = Page("node-cluster.md")
    password = str(conninfo_to_dict(documented(database))["password"])
    source = documented(database).replace(f":{password}@", ":${PASSWORD}@")
    [settings] = page.blocks("toml")
    (tmp_path / "feeds.toml").write_text(FEED.format(source=source, directory=tmp_path) + settings)
    *commands, kill = re.findall(r"^\$ (.*)$", page.section("On one machine"), re.MULTILINE)
    port = free_port()
    commands = [re.sub(r"^cdc node .*(?= &)", rf"\g<0> --master-port {port} 2>> node.log", each) for each in commands]
    *nodes, create = commands[: commands.index("cdc create feeds.toml") + 1]
    # A worker that meets a master before its election tries again some ten seconds later.
    registered = "grep -l 'Successfully registered with master' .cdc/nodes/*/cluster/worker.log | wc -l"
    joined = f'until [ "$({registered})" = 2 ]; do sleep 1; done'
    until = "until grep -q ' with 2 task slots' node.log && ls out/*/*.RESOLVED; do sleep 1; done"
    rest = commands[len(nodes) + 1 :]
    script = "\n".join(["set -m", f"trap '{kill}; wait' EXIT", "set -e", *nodes, joined, create, until, *rest])
    done = page.shell(tmp_path, script, PASSWORD=password)
    log = (tmp_path / "node.log").read_text()
    assert done.returncode == 0, done.stderr + log
    assert sorted(row["key"][0] for row in delivered(tmp_path / "out", "orders")) == list(range(1, 501))
    assert "2 executors with 2 task slots" in log


def test_a_pinned_changefeed_runs_in_its_region_only(database: str, sql: Sql, tmp_path: Path) -> None:
    sql.execute("CREATE TABLE vehicles AS SELECT n AS id, 'rome' AS city FROM generate_series(1, 500) n")
    sql.execute("ALTER TABLE vehicles ADD PRIMARY KEY (id)")
    page = Page("localities.md")
    places = {
        "7077": str(free_port()),
        "postgresql://user@127.0.0.1:5432/movr": documented(database),
        "/tmp/vehicles": str(tmp_path / "out"),
    }

    def ours(text: str) -> str:
        for place, own in places.items():
            text = text.replace(place, own)
        return text

    toml = ours("".join(page.blocks("toml")))
    assert documented(database) in toml
    (tmp_path / "feeds.toml").write_text(toml)
    nowhere = toml.replace(AWS, "region=us-east-2,cloud=gcp").replace(AWS.partition(",")[0], "region=eu-west-1")
    assert "region=eu-west-1,cloud=gcp" in nowhere
    options = "[changefeed.vehicles.options]\n"
    nowhere = nowhere.replace(options, f'{options}executor_wait = "3s"\n').replace(
        "changefeed.vehicles", "changefeed.nowhere"
    )
    (tmp_path / "nowhere.toml").write_text(nowhere)
    commands = [
        *re.findall(r"^\$ (.*)$", ours(page.section("A standalone cluster")), re.M),
        "! cdc run nowhere.toml --once --state nowhere",
    ]
    script = "\n".join(["set -m", "trap 'kill %1 %2 %3' EXIT", "set -e", *commands])
    done = page.shell(tmp_path, script, JDK_JAVA_OPTIONS=JAVA_OPTIONS)
    assert done.returncode == 0, done.stderr + (tmp_path / "master.log").read_text()
    assert sorted(row["key"][0] for row in delivered(tmp_path / "out", "vehicles")) == list(range(1, 501))
    assert "1 executor with " in done.stderr
    assert list((tmp_path / "us").glob("app-*")), "executors run in their worker's directory"
    assert not list((tmp_path / "eu").glob("app-*"))
    needs = "every core of a worker, 512m of memory, 1 of resource cdc_cloud_gcp, 1 of resource cdc_region_eu-west-1"
    assert f"no executor started within 3s (executor_wait): each needs {needs}, and the master spark://" in done.stderr
    assert "start a worker there with the settings of `cdc worker-resources`" in done.stderr
