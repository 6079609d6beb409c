"""Deliver a scan and a change to files, Kafka and a webhook, in every format of theirs. check_floors.py starts this."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import psycopg
import pyarrow.parquet
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.broker import KafkaBroker
from cdc_sink_kafka.demo.registry import SchemaRegistry
from confluent_kafka import Consumer, KafkaException, TopicPartition

ROWS, CHANGES = 1000, 10
LIMIT_S = 800.0
FEEDS = """\
[changefeed.parquet]
source = "${{FLOORS_SOURCE}}"
tables = ["item"]
sink = "file://{directory}/parquet"
format = "parquet"
options = {{ file_size = "1MB" }}

[changefeed.avro]
source = "${{FLOORS_SOURCE}}"
tables = ["item"]
sink = "kafka://{broker}?topic_prefix=avro-"
format = "avro"
options = {{ confluent_schema_registry = "{registry}" }}

[changefeed.protobuf]
source = "${{FLOORS_SOURCE}}"
tables = ["item"]
sink = "kafka://{broker}?topic_prefix=protobuf-"
format = "protobuf"

[changefeed.json]
source = "${{FLOORS_SOURCE}}"
tables = ["item"]
sink = "webhook-http://127.0.0.1:{port}/"
"""


class Hook(BaseHTTPRequestHandler):
    received: ClassVar[list[int]] = []  # the rows of each request; several come at once

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.received.append(body.count(b'"after"'))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


def main() -> int:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hook = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Hook))
        Thread(target=hook.serve_forever, daemon=True).start()
        broker = stack.enter_context(KafkaBroker()).bootstrap_servers
        consumer = Consumer({"bootstrap.servers": broker, "group.id": "floors"})
        stack.callback(consumer.close)
        registry = stack.enter_context(SchemaRegistry()).url
        server = stack.enter_context(EmbeddedPostgres())
        database = stack.enter_context(psycopg.connect(server.uri(), autocommit=True))
        database.execute("CREATE TABLE item (id int PRIMARY KEY, name text, price numeric(9, 2), at timestamptz)")
        database.execute(
            f"INSERT INTO item SELECT i, 'name ' || i, i / 7.0, now() FROM generate_series(1, {ROWS}) AS i"
        )
        file = directory / "feeds.toml"
        file.write_text(
            FEEDS.format(directory=directory, broker=broker, registry=registry, port=hook.server_address[1])
        )
        counts: dict[str, Callable[[], int]] = {
            "parquet": lambda: rows_of(directory / "parquet"),
            "avro": lambda: messages_of(consumer, "avro-item"),
            "protobuf": lambda: messages_of(consumer, "protobuf-item"),
            "json": lambda: sum(Hook.received),
        }
        command = [str(Path(sys.executable).with_name("cdc")), "run", str(file), "--state", str(directory / "state")]
        log = stack.enter_context((directory / "log").open("w+"))
        environment = {**os.environ, "FLOORS_SOURCE": server.uri()}
        changefeeds = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait(changefeeds, counts, ROWS)
            database.execute(f"UPDATE item SET name = 'new' WHERE id <= {CHANGES}")
            wait(changefeeds, counts, ROWS + CHANGES)
            changefeeds.send_signal(signal.SIGTERM)
            status = changefeeds.wait(LIMIT_S)
            if status not in (0, 143):
                raise RuntimeError(f"the changefeeds ended with status {status}")
        except BaseException:
            log.seek(0)
            print(log.read())
            raise
        finally:
            changefeeds.kill()
            changefeeds.wait()
    return 0


def wait(changefeeds: subprocess.Popen[bytes], counts: dict[str, Callable[[], int]], wanted: int) -> None:
    """Return when every destination has *wanted* rows. Raises: RuntimeError when one does not get them."""
    deadline = time.monotonic() + LIMIT_S
    while late := {name: found for name, count in counts.items() if (found := count()) < wanted}:
        with suppress(subprocess.TimeoutExpired):
            changefeeds.wait(1)
        if changefeeds.returncode is not None or time.monotonic() > deadline:
            raise RuntimeError(f"of {wanted} rows there arrived: {late}")


def rows_of(directory: Path) -> int:
    return sum(pyarrow.parquet.read_metadata(path).num_rows for path in directory.rglob("*.parquet"))


def messages_of(consumer: Consumer, topic: str) -> int:
    """Return how many messages *topic* has, none while it is being created."""
    try:
        found = consumer.list_topics(topic, timeout=30).topics[topic]
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1] for number in found.partitions
        )
    except KafkaException:
        return 0


if __name__ == "__main__":
    sys.exit(main())
