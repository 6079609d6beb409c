"""The Spark settings that `execution_locality` means with each master."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from cdc_testing.engine import counter_feed

from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.spark.placement_settings import pinned, worker_resources
from cdc_core.spark.runner import Runner

TIERS = "region=us-east-2,cloud=aws"
NOWHERE, HERE = Locality(), Locality.parse("cloud=aws,region=us-east-2,zone=a")
ELSEWHERE = Locality.parse("region=eu-west-1,cloud=aws")
LABEL = "node.selector.topology.kubernetes.io"


@pytest.mark.parametrize(
    ("master", "tiers", "settings"),
    [
        (
            "spark://host:7077",
            TIERS,
            {
                "spark.executor.resource.cdc_region_us-east-2.amount": "1",
                "spark.executor.resource.cdc_cloud_aws.amount": "1",
            },
        ),
        ("spark://host:7077", "dc=a.b", {"spark.executor.resource.cdc_dc_a_b.amount": "1"}),
        (
            "k8s://https://host:6443",
            "region=us-east-2,zone=a,cloud=aws",
            {
                f"spark.kubernetes.driver.{LABEL}/region": "us-east-2",
                f"spark.kubernetes.executor.{LABEL}/region": "us-east-2",
                f"spark.kubernetes.driver.{LABEL}/zone": "a",
                f"spark.kubernetes.executor.{LABEL}/zone": "a",
                "spark.kubernetes.driver.node.selector.cloud": "aws",
                "spark.kubernetes.executor.node.selector.cloud": "aws",
            },
        ),
        (
            "yarn",
            "region=us-east-2",
            {"spark.yarn.am.nodeLabelExpression": "us-east-2", "spark.yarn.executor.nodeLabelExpression": "us-east-2"},
        ),
    ],
)
def test_each_master_has_its_own_way(master: str, tiers: str, settings: Mapping[str, str]) -> None:
    spark = {"master": master, "spark.executor.cores": "2"}
    found = pinned(spark, tiers, here=NOWHERE)
    assert found == {**spark, **settings}
    assert pinned(found, tiers, here=HERE if tiers == TIERS else NOWHERE) == found, "repeatable"
    assert pinned(spark, None, here=ELSEWHERE) == spark


@pytest.mark.parametrize("spark", [{}, {"master": "local[2]"}, {"master": "local-cluster[2,1,1024]"}])
def test_a_local_master_runs_where_this_process_is(spark: Mapping[str, str]) -> None:
    assert pinned(spark, TIERS, here=HERE) == spark
    with pytest.raises(
        ConfigError, match=rf"{TIERS} does not match this process, which has no locality; run " rf"the changefeed on"
    ):
        pinned(spark, TIERS, here=NOWHERE)
    with pytest.raises(
        ConfigError, match=rf"{TIERS} does not match .* whose locality is {ELSEWHERE}; run " rf"the changefeed on"
    ):
        pinned(spark, TIERS, here=ELSEWHERE)


def test_a_driver_that_says_where_it_is_must_match_on_a_cluster_too() -> None:
    with pytest.raises(ConfigError, match=r"does not match this process, whose locality is region=eu-west-1,cloud=aws"):
        pinned({"master": "spark://host:7077"}, TIERS, here=ELSEWHERE)


@pytest.mark.parametrize(
    ("spark", "tiers", "reason"),
    [
        ({"master": "yarn"}, TIERS, r"has 2 tiers, but YARN selects nodes by one label; give the nodes a label for"),
        ({"master": "yarn"}, "dc=a.b", r"'a\.b' is not a valid YARN node label; use letters, digits, - and _"),
        (
            {"master": "mesos://host:5050"},
            TIERS,
            r"by the Spark master 'mesos://host:5050'; use local, nodes, spark://",
        ),
        (
            {"master": "spark://h:1", "spark.executor.resource.cdc_cloud_aws.amount": "0"},
            TIERS,
            r"sets spark\.executor\.resource\.cdc_cloud_aws\.amount to '1', but the Spark settings set it to '0';",
        ),
        (
            {"master": "k8s://h", "spark.kubernetes.node.selector.cloud": "gcp"},
            TIERS,
            r"sets spark\.kubernetes\.node\.selector\.cloud to 'aws', but the Spark settings set it to 'gcp';",
        ),
    ],
)
def test_what_cannot_be_carried_out_is_refused(spark: Mapping[str, str], tiers: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"execution_locality {tiers}.*{reason}"):
        pinned(spark, tiers, here=NOWHERE)


def test_a_worker_has_a_resource_for_each_of_its_tiers() -> None:
    content, settings = worker_resources(ELSEWHERE, "/etc/spark/cdc.json", executors=2)
    assert json.loads(content) == [
        {"id": {"componentName": "spark.worker", "resourceName": name}, "addresses": ["0", "1"]}
        for name in ("cdc_cloud_aws", "cdc_region_eu-west-1")
    ]
    assert settings.splitlines() == [
        "spark.worker.resourcesFile /etc/spark/cdc.json",
        "spark.worker.resource.cdc_cloud_aws.amount 2",
        "spark.worker.resource.cdc_region_eu-west-1.amount 2",
    ]


def test_a_runner_refuses_what_its_session_cannot_carry_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not match this process, whose locality is region=eu-west-1"):
        Runner(tmp_path, execution_locality=TIERS, locality=ELSEWHERE)


def test_changefeeds_of_a_session_have_its_execution_locality(tmp_path: Path) -> None:
    spark = {"master": "spark://host:7077", "spark.authenticate": "false"}
    feed = counter_feed(tmp_path, options={"execution_locality": TIERS}, spark=spark)
    with Runner(tmp_path, spark=spark, execution_locality=TIERS) as runner:
        assert "spark.executor.resource.cdc_cloud_aws.amount" in runner.add(feed).feed.spark
    with (
        Runner(tmp_path, spark=spark) as runner,
        pytest.raises(ConfigError, match=r"or another execution_locality, than this process's session has; run"),
    ):
        runner.add(feed)
