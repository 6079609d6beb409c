"""`cdc audit` beside a changefeed that runs: Kafka, a table under load, and three rows that are wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.kafka_reading import read_topics
from cdc_testing.postgres import Sql
from cdc_testing.runs import Feed
from cdc_testing.thread_host import KeptThreads
from confluent_kafka import Producer

from cdc_core import Timestamp

pytestmark = pytest.mark.slow


def audited(feed: Feed, sql: Sql, status: int) -> list[dict[str, Any]]:
    """Audit while rows change, and return what is printed."""
    command = [sys.executable, "-m", "cdc_core", "audit", str(feed.toml), "--state", str(feed.state), "--json"]
    number = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while True:
            try:
                printed, errors = running.communicate(timeout=0.05)
                break
            except subprocess.TimeoutExpired:
                number += 1
                sql.execute("UPDATE orders SET v = v + 1 WHERE id = %s", [number % 500])
                sql.execute("INSERT INTO orders VALUES (%s, 0, 'new') ON CONFLICT DO NOTHING", [10_000 + number % 300])
                sql.execute("DELETE FROM orders WHERE id = %s", [10_000 + (number + 150) % 300])
    assert running.returncode == status, printed + errors
    return [json.loads(line) for line in printed.splitlines()]


def test_three_wrong_rows_are_found_while_the_table_changes(
    database: str, tmp_path: Path, kafka_broker: Kafka, topic_prefix: str, kept_threads: KeptThreads
) -> None:
    topic = f"{topic_prefix}orders"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, v int, w text)")
        connection.execute("INSERT INTO orders SELECT n, n, 'row ' || n FROM generate_series(1, 3000) n")
        connection.execute("INSERT INTO orders SELECT n, n, 'calm' FROM generate_series(5001, 5010) n")
        options = {"topic_prefix": topic_prefix, "topic_partitions": 2}
        sink = f"kafka://{kafka_broker.bootstrap_servers}"
        with Feed(tmp_path, database, ["orders"], options=options, sink=sink) as feed:
            feed.once(kept_threads)

            def audit_twice() -> None:
                (figures,) = audited(feed, connection, 0)
                assert figures["rows"] >= 3010
                assert figures["changed"] > 0, "rows that changed meanwhile"
                producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
                for message in read_topics(kafka_broker.bootstrap_servers, [topic]):
                    if message.key in (b"[5001]", b"[5002]", b"[5003]"):
                        value = json.loads(message.value or b"")
                        time = Timestamp.parse(value["updated"])
                        value["updated"] = str(Timestamp(time.wall, time.logical + 1))
                        key, value["after"] = spoiled(message.key, value["after"])
                        producer.produce(topic, json.dumps(value).encode(), key, partition=message.partition)
                producer.flush()
                *found, figures = audited(feed, connection, 1)
                assert (figures["missing"], figures["extra"], figures["different"]) == (1, 1, 1)
                assert sorted((row["finding"], row["key"]["id"]) for row in found) == [
                    ("different", 5002),
                    ("extra", 99999),
                    ("missing", 5001),
                ]
                (row,) = (row for row in found if row["finding"] == "different")
                assert (row["source"], row["destination"]) == ({"w": "calm"}, {"w": "stormy"})

            feed.during(kept_threads, audit_twice)


def spoiled(key: bytes, after: dict[str, Any]) -> tuple[bytes, dict[str, Any] | None]:
    if key == b"[5001]":
        return key, None
    if key == b"[5002]":
        return key, {**after, "w": "stormy"}
    return b"[99999]", {**after, "id": 99999}
