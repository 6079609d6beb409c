"""A node runs a pinned job with the Spark settings that its master needs for that."""

from __future__ import annotations

from pathlib import Path

from cdc_testing.nodes import Nodes

from cdc_core.store.opening import store_url

HERE = "region=eu-west-1,cloud=aws"


def test_a_job_that_its_spark_master_cannot_pin_waits_with_the_reason(tmp_path: Path) -> None:
    with Nodes(tmp_path, store_url(tmp_path)) as nodes:
        nodes.start("one", locality=f"{HERE},zone=a")
        source = "postgresql://nobody@127.0.0.1:1/nowhere"
        nodes.create("orders", source, ["orders"], "file:///nowhere", locality=HERE, spark={"master": "yarn"})
        problem = f"execution_locality {HERE} has 2 tiers, and YARN selects nodes by one label"
        nodes.eventually("the node says why", lambda: problem in str(nodes.store.living_nodes()[0].problems))
