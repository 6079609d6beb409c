"""SIGKILL for every part of a cluster, in the middle of the scan and of the log: consumers see complete, ordered data.

The hosts of executors do not see the driver's state directory, so they have only the progress store in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.bank import TABLES, Bank, assert_faithful, assert_faithful_kafka, open_bank
from cdc_testing.cluster_kills import ClusterKills
from cdc_testing.fixtures import fresh_database
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import Feed
from cdc_testing.spark_cluster import SparkCluster

pytestmark = pytest.mark.slow

OPTIONS = {
    "max_step_bytes": "256KB",
    "scan_chunk_size": "128KB",
    "scan_round": "2s",
    "retry_backoff": "100ms",
    "max_retry_backoff": "1s",
    "executor_wait": "20s",
}


@pytest.fixture
def store(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    with fresh_database(postgres_server) as uri:
        yield uri


def test_files_are_complete_and_in_order_whatever_is_killed(
    free_cluster: SparkCluster, database: str, store: str, tmp_path: Path
) -> None:
    cluster = free_cluster
    files = cluster.shared / tmp_path.name
    directory = cluster.private / tmp_path.name
    feed = Feed(
        directory, database, TABLES, options=OPTIONS, spark=cluster.settings, sink=f"file://{files}", store=store
    )
    kills = ClusterKills(cluster, feed, source=database, store=store)
    open_bank(database, filler=20_000)
    with feed:
        with Bank(database, pause_s=0.02):
            feed.start()
            kills.kill("executor", during="scan")
            kills.kill("driver", during="scan")
            kills.kill("python", during="log")
            kills.kill("master", during="log")
        kills.reach_now()
        feed.stop()
    assert_faithful(files, database)
    assert "there has been no executor for 20s (executor_wait): the master spark://" in feed.log()


def test_topics_that_several_tasks_write_are_complete_and_in_order_when_a_worker_is_killed(
    cluster: SparkCluster,
    spark: KeptSpark,
    database: str,
    store: str,
    kafka_broker: Kafka,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    servers = kafka_broker.bootstrap_servers
    options = {**OPTIONS, "topic_prefix": topic_prefix, "topic_partitions": 3, "delivery_tasks": 3}
    directory = cluster.private / tmp_path.name
    feed = Feed(
        directory, database, TABLES, options=options, spark=spark.settings, sink=f"kafka://{servers}", store=store
    )
    kills = ClusterKills(cluster, feed, source=database, store=store)
    open_bank(database, filler=4_000)

    def work() -> None:
        with Bank(database, pause_s=0.02):
            kills.kill("worker", during="log")
        kills.reach_now()

    feed.during(spark, work)
    assert_faithful_kafka(servers, database, prefix=topic_prefix)
