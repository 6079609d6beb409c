"""The tutorials, each followed from beginning to end with real servers: its commands print what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.object_stores import free_ports
from cdc_testing.tutorials import Tutorial

pytestmark = pytest.mark.slow


def test_the_quickstart(tmp_path: Path) -> None:
    with Tutorial("quickstart", tmp_path, {}) as tutorial:
        tutorial.follow()


def test_postgresql_to_kafka(tmp_path: Path, kafka_broker: Kafka, topic_prefix: str) -> None:
    """The broker is that of all tests; the registry, which the page does not use, is nowhere."""
    servers = {"KAFKA_BOOTSTRAP_SERVERS": kafka_broker.bootstrap_servers, "SCHEMA_REGISTRY_URL": "http://localhost:9"}
    with Tutorial("postgres-to-kafka", tmp_path, {"customers": f"{topic_prefix}customers"}, **servers) as tutorial:
        tutorial.follow()


def test_postgresql_to_s3_and_duckdb(tmp_path: Path) -> None:
    s3 = free_ports()
    names = ("master.port", "volume.port", "filer.port", "admin.port")
    ports = f"-bucket=changefeeds -s3.port={s3} " + " ".join(f"-{name}={free_ports()}" for name in names)
    own = f"{ports} -webdav=false -s3.port.iceberg=0 -s3.port.lance=0"
    with Tutorial("postgres-to-s3-duckdb", tmp_path, {"-bucket=changefeeds": own, ":8333": f":{s3}"}) as tutorial:
        tutorial.follow()


def test_postgresql_to_a_webhook(tmp_path: Path) -> None:
    with Tutorial("postgres-to-webhook", tmp_path, {"8088": str(free_port())}) as tutorial:
        tutorial.follow()
