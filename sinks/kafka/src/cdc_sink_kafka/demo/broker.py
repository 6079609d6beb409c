"""A real Apache Kafka broker (KRaft) on loopback that can be killed and started again."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException

from cdc_sink_kafka.demo.client import admin_client
from cdc_sink_kafka.demo.jars import kafka_jars
from cdc_sink_kafka.demo.java_process import free_port, run_java
from cdc_sink_kafka.demo.java_server import JavaServer
from cdc_sink_kafka.demo.listeners import KafkaSecurity, Listener, listener_settings

_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
_SETTINGS = {
    "num.partitions": "3",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # a killed broker can rejoin only after its previous session has expired
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
"""Settings for a small broker that responds quickly."""
_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


class KafkaBroker(JavaServer):
    """One broker. A context manager: it starts the broker, kills it in the end, and removes a temporary directory.

    *settings* replace ours in `server.properties`, such as `num.partitions`, `auto.create.topics.enable` or
    `message.max.bytes`. With *security* the broker has every `Listener`, otherwise PLAINTEXT only. *java_options*
    replace ours, which favor a fast start and little memory over throughput. *node_id* and *controller_ports* are for a
    cluster of brokers. A restarted broker keeps its data and ports. Several threads may start brokers at once, but only
    one thread at a time may use a broker.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        security: KafkaSecurity | None = None,
        node_id: int = 1,
        controller_ports: Sequence[int] = (),
        java_options: Sequence[str] = (),
    ) -> None:
        super().__init__(f"the Kafka broker {node_id}", directory, prefix="cdc-kafka-")
        self.node_id = node_id
        self.security = security
        self._settings = dict(settings or {})
        self._java_options = tuple(java_options)
        self._controller_ports = tuple(controller_ports) or (free_port(),)
        self._ports: dict[Listener, int] = {name: free_port() for name in _listeners(security)}

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients without TLS or passwords."""
        return self.address("PLAINTEXT")

    def address(self, listener: Listener) -> str:
        """Return host and port of *listener*. All listeners except PLAINTEXT need `security`."""
        return f"127.0.0.1:{self._ports[listener]}"

    def start(self) -> None:
        """Return when the broker answers. After a kill it has the data that was on disk.

        Raises: RuntimeError with the end of the log when it does not start; ConfigError when Java or Maven is missing.
        """
        jars = f"{kafka_jars()}/*"
        configuration = self._configure()
        if not (self._data / "meta.properties").exists():
            self._format(jars, configuration)
        arguments = ["-Xmx384m", *self._java_options, *_LOGGING, "-cp", jars, "kafka.Kafka", str(configuration)]
        self._launch(arguments, ready=self.answers)

    def change_configs(self, *arguments: str) -> None:
        """Run Kafka's own `kafka-configs --alter` with *arguments*: client libraries cannot set quotas.

        For example `--entity-type clients --entity-default --add-config producer_byte_rate=100000`. Takes a second.
        Raises: RuntimeError with the output of the tool.
        """
        tool = ["-cp", f"{kafka_jars()}/*", "kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap_servers]
        run_java("kafka-configs", [*tool, "--alter", *arguments], cwd=self.directory)

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _configure(self) -> Path:
        nodes = len(self._controller_ports)
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(self._controller_ports, start=1))
        settings = {
            **_SETTINGS,
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": voters,
            "log.dirs": str(self._data),
            "default.replication.factor": str(nodes),
            "min.insync.replicas": str(nodes // 2 + 1),
            "offsets.topic.replication.factor": str(nodes),
            "transaction.state.log.replication.factor": str(nodes),
            "transaction.state.log.min.isr": str(nodes // 2 + 1),
            **listener_settings(
                self._ports,
                controller_port=self._controller_ports[self.node_id - 1],
                security=self.security,
                directory=self.directory,
            ),
            **self._settings,
        }
        path = self.directory / "server.properties"
        self.directory.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def _format(self, jars: str, configuration: Path) -> None:
        users = self.security.users if self.security else {}
        credentials = [
            f"--add-scram={mechanism}=[name={user},password={password}]"
            for user, password in users.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        ]
        tool = ["-cp", jars, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(configuration)]
        run_java("formatting the broker's directory", [*tool, *credentials], cwd=self.directory)

    def answers(self) -> bool:
        """Return whether the broker is a member of its cluster: one that was paused for long is not, for some time."""
        try:
            socket.create_connection(("127.0.0.1", self._ports["PLAINTEXT"]), 1).close()
            with admin_client(self.bootstrap_servers) as admin:
                found = admin.list_topics(timeout=2)
                return self.node_id in found.brokers and found.controller_id >= 0
        except (OSError, KafkaException):
            return False


def _listeners(security: KafkaSecurity | None) -> tuple[Listener, ...]:
    return ("PLAINTEXT",) if security is None else ("PLAINTEXT", "SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")
