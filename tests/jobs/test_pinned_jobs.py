"""A node runs a pinned job with the Spark settings that its master needs for that."""

from __future__ import annotations

from pathlib import Path

from cdc_testing.bare_nodes import StuckHost, bare_node, bare_settings, create, plugins
from cdc_testing.engine import eventually

from cdc_core.store.progress import ProgressStore, store_url

HERE = "region=eu-west-1,cloud=aws"


def test_a_job_that_its_spark_master_cannot_pin_waits_with_the_reason(tmp_path: Path) -> None:
    store = ProgressStore(store_url(tmp_path / "store"))
    store.open()
    settings = bare_settings(store.url, tmp_path / "one", locality=f"{HERE},zone=a")
    try:
        with bare_node(settings, StuckHost(), plugins()):
            eventually(store.nodes.living, what="a node")
            create(store, "orders", locality=HERE, master="yarn")
            problem = f"execution_locality {HERE} has 2 tiers, and YARN selects nodes by one label"
            eventually(lambda: problem in str([node.problems for node in store.nodes.living()]), what="why")
    finally:
        store.close()
