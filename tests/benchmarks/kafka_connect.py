"""Kafka Connect for comparison: a standalone worker with Debezium's PostgreSQL connector, downloaded with Maven."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.kafka_topic import KafkaTopic
from benchmarks.peer import connector_properties
from benchmarks.processes import Usage, watched
from cdc_sink_kafka.demo.jars import KAFKA_VERSION, jars_of, pom
from cdc_sink_kafka.demo.java_process import free_port, java

_POM = pom(
    "kafka-connect",
    f"org.apache.kafka:connect-runtime:{KAFKA_VERSION}",
    f"org.apache.kafka:connect-json:{KAFKA_VERSION}",
    "io.debezium:debezium-connector-postgres:3.6.3.Final",
    "org.slf4j:slf4j-simple:1.7.36",
)
_JAVA = ("-Xms256m", "-Xmx2g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""The options of Kafka's own `connect-standalone`."""
_POLL_S = 1.0
_STOP_LIMIT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class ConnectRun:
    """The figures of one run of the worker.

    `first_at` and `last_at` are the times of the first and the last message of the run, in seconds since 1970;
    `launched_at` is when the process began. `curve` is how many messages the broker had, by seconds since then.
    """

    launched_at: float
    first_at: float
    last_at: float
    events: int
    curve: tuple[tuple[float, int], ...]
    peak_rss: int
    cpu_s: float

    @property
    def rate(self) -> float:
        """Messages per second from the first to the last one, without the start of the JVM and of the connector."""
        return self.events / max(self.last_at - self.first_at, 1e-9)

    @property
    def rate_with_start(self) -> float:
        """Messages per second from the start of the process to the last message."""
        return self.events / (self.last_at - self.launched_at)

    def details(self) -> dict[str, Any]:
        return {**asdict(self), "rate": self.rate, "rate_with_start": self.rate_with_start}


class KafkaConnect:
    """One connector for *table* of *uri*, with its own slot, publication and offset file.

    The slot disappears with its database. *scratch* has the files of the worker.
    """

    def __init__(self, scratch: Path, uri: str, *, table: str, brokers: str) -> None:
        self._work = scratch / f"connect_{uuid.uuid4().hex[:8]}"
        self._uri = uri
        self._table = table
        self._brokers = brokers
        self.name = self._work.name
        self.rest = f"http://127.0.0.1:{free_port()}"
        self.topic = KafkaTopic(brokers, f"{self.name}.{table}")

    def run(self, *, expect: int, timeout_s: float = 600.0) -> ConnectRun:
        """Run the worker from where it ended (the first time: a snapshot) until the broker has *expect* new messages.

        Raises: RuntimeError with the path of the log when the worker ends before that or takes too long.
        """
        before = self.topic.ends()
        launched_at = time.time()
        deadline = time.monotonic() + timeout_s
        curve: list[tuple[float, int]] = []
        with self.worker() as process, watched(process.pid) as usage:
            while True:
                events = sum(self.topic.ends().values()) - sum(before.values())
                curve.append((round(time.time() - launched_at, 3), events))
                if events >= expect:
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"Kafka Connect does not deliver; see {self._work}/worker.log")
                time.sleep(_POLL_S)
        first, last = self.topic.first_time(before), self.topic.last_time(before)
        assert first is not None
        assert last is not None
        return ConnectRun(
            launched_at=launched_at,
            first_at=first,
            last_at=last,
            events=events,
            curve=tuple(curve),
            peak_rss=usage.peak,
            cpu_s=_cpu(usage, first, last),
        )

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the worker inside the block. It terminates normally and saves its offsets."""
        self._work.mkdir(parents=True, exist_ok=True)
        jars = jars_of(f"kafka-connect-{KAFKA_VERSION}", _POM, what="Kafka Connect")
        worker = _write(self._work / "worker.properties", self._worker_properties())
        connector = _write(self._work / "connector.properties", self._connector_properties())
        arguments = [*_JAVA, "-cp", f"{jars}/*", "org.apache.kafka.connect.cli.ConnectStandalone"]
        command = ["setpriv", "--pdeathsig", "KILL", java(), *arguments, str(worker), str(connector)]
        with (
            (self._work / "worker.log").open("ab") as log,
            subprocess.Popen(command, cwd=self._work, stdout=log, stderr=log) as process,
        ):
            try:
                yield process
                process.terminate()
                process.wait(_STOP_LIMIT_S)
            finally:
                if process.poll() is None:
                    process.kill()

    def _worker_properties(self) -> Mapping[str, Any]:
        converter = "org.apache.kafka.connect.json.JsonConverter"
        return {
            "bootstrap.servers": self._brokers,
            "listeners": self.rest,
            "plugin.discovery": "only_scan",
            "key.converter": converter,
            "key.converter.schemas.enable": "false",
            "value.converter": converter,
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": self._work / "offsets.dat",
            "offset.flush.interval.ms": 1000,
            "producer.acks": "all",
            "producer.enable.idempotence": "true",
            # large batches, as in the Kafka sink; the default is 16 KiB
            "producer.batch.size": 1 << 20,
            "producer.buffer.memory": 64 << 20,
            "producer.linger.ms": 5,
        }

    def _connector_properties(self) -> Mapping[str, Any]:
        return {
            **connector_properties(self._uri, name=self.name, table=self._table),
            "tasks.max": 1,
            "topic.creation.default.partitions": -1,
            "topic.creation.default.replication.factor": -1,
        }


def _cpu(usage: Usage, begin: float, end: float) -> float:
    return round(sum(usage.cpu_between(begin, end).values()), 2)


def _write(path: Path, properties: Mapping[str, Any]) -> Path:
    path.touch(0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path
