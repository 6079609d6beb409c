"""docs/node-cluster.md is true: its nodes on one machine are a cluster, on which its changefeed runs."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.documented_role import documented
from cdc_testing.files import delivered
from cdc_testing.pages import Page
from psycopg.conninfo import conninfo_to_dict

pytestmark = pytest.mark.slow

PAGE = Page("node-cluster.md")
FEED = """
[changefeed.orders]
source = "{source}"
tables = ["public.orders"]
sink = "file://{directory}/out"
[changefeed.orders.options]
resolved = "1s"
"""


def test_the_nodes_of_the_page_run_its_changefeed_together(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)")
        connection.execute("INSERT INTO orders SELECT n, 'book' FROM generate_series(1, 500) n")
    password = str(conninfo_to_dict(documented(database))["password"])
    source = documented(database).replace(f":{password}@", ":${PASSWORD}@")
    [settings] = PAGE.blocks("toml")
    (tmp_path / "feeds.toml").write_text(FEED.format(source=source, directory=tmp_path) + settings)
    *commands, kill = re.findall(r"^\$ (.*)$", PAGE.section("On one machine"), re.MULTILINE)
    port = free_port()
    commands = [re.sub(r"^cdc node .*(?= &)", rf"\g<0> --master-port {port} 2>> node.log", each) for each in commands]
    *nodes, create = commands[: commands.index("cdc create feeds.toml") + 1]
    # A worker that meets a master before its election tries again some ten seconds later.
    registered = "cat .cdc/nodes/*/cluster/worker.log | grep -c 'Successfully registered with master'"
    joined = f'until [ "$({registered})" = 2 ]; do sleep 1; done'
    until = "until grep -q ' with 2 task slots' node.log && ls out/*/*.RESOLVED; do sleep 1; done"
    rest = commands[len(nodes) + 1 :]
    script = "\n".join(["set -m", f"trap '{kill}; wait' EXIT", "set -e", *nodes, joined, create, until, *rest])
    done = PAGE.shell(tmp_path, script, PASSWORD=password)
    log = (tmp_path / "node.log").read_text()
    assert done.returncode == 0, done.stderr + log
    assert sorted(row["key"][0] for row in delivered(tmp_path / "out", "orders")) == list(range(1, 501))
    assert "2 executors with 2 task slots" in log
