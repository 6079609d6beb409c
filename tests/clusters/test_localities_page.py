"""docs/localities.md is true: its cluster runs a pinned changefeed in one region, and says so when none matches."""

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

PAGE = Page("localities.md")
AWS = "region=us-east-2,cloud=aws"


def test_a_pinned_changefeed_runs_in_its_region_only(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE vehicles (id int PRIMARY KEY, city text)")
        connection.execute("INSERT INTO vehicles SELECT n, 'rome' FROM generate_series(1, 500) n")
    places = {
        "7077": str(free_port()),
        "postgresql://user@127.0.0.1:5432/movr": documented(database),
        "/tmp/vehicles": str(tmp_path / "out"),
    }

    def ours(text: str) -> str:
        for place, own in places.items():
            text = text.replace(place, own)
        return text

    toml = ours("".join(PAGE.blocks("toml")))
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
        *re.findall(r"^\$ (.*)$", ours(PAGE.section("A standalone cluster")), re.M),
        "! cdc run nowhere.toml --once --state nowhere",
    ]
    script = "\n".join(["set -m", "trap 'kill %1 %2 %3' EXIT", "set -e", *commands])
    done = PAGE.shell(tmp_path, script, JDK_JAVA_OPTIONS=JAVA_OPTIONS)
    assert done.returncode == 0, done.stderr + (tmp_path / "master.log").read_text()
    assert sorted(row["key"][0] for row in delivered(tmp_path / "out", "vehicles")) == list(range(1, 501))
    assert "1 executor with " in done.stderr
    assert list((tmp_path / "us").glob("app-*")), "executors run in their worker's directory"
    assert not list((tmp_path / "eu").glob("app-*"))
    needs = "every core of a worker, 512m of memory, 1 of resource cdc_cloud_gcp, 1 of resource cdc_region_eu-west-1"
    assert f"no executor started within 3s (executor_wait): each needs {needs}, and the master spark://" in done.stderr
    assert "start a worker there with the settings of `cdc worker-resources`" in done.stderr
