"""A worker of Apache Kafka Connect, with the connectors that read and write files."""

from __future__ import annotations

from pathlib import Path

import httpx2
from cdc_sink_kafka.demo.jars import KAFKA_VERSION, jars_of
from cdc_sink_kafka.demo.java_process import free_port
from cdc_sink_kafka.demo.java_server import JavaServer

__all__ = ["ConnectWorker"]

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>cdc</groupId><artifactId>kafka-connect</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>connect-file</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.5</version>
    </dependency>
  </dependencies>
</project>
"""


class ConnectWorker(JavaServer):
    """The only worker of a cluster, whose topics are in the broker *brokers* and begin with *prefix*."""

    def __init__(self, brokers: str, prefix: str, directory: Path | None = None) -> None:
        super().__init__("Kafka Connect", directory, prefix="cdc-connect-")
        self._brokers, self._prefix = brokers, prefix
        self.url = f"http://127.0.0.1:{free_port()}"

    def start(self) -> None:
        jars = jars_of(f"connect-worker-{KAFKA_VERSION}", _POM, what="Kafka Connect")
        settings = {
            "bootstrap.servers": self._brokers,
            "listeners": self.url,
            "group.id": f"{self._prefix}group",
            "plugin.discovery": "service_load",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.flush.interval.ms": "1000",
            **{f"{name}.storage.topic": f"{self._prefix}{name}" for name in ("config", "offset", "status")},
            **{f"{name}.storage.replication.factor": "1" for name in ("config", "offset", "status")},
            **{f"{name}.storage.partitions": "1" for name in ("offset", "status")},
        }
        path = self.directory / "worker.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        self._process.start(["-Xmx256m", "-cp", f"{jars}/*", main, str(path)], ready=self._healthy)

    def _healthy(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/health", timeout=10).status_code == 200
        except httpx2.HTTPError:
            return False
