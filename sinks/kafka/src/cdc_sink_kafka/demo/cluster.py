"""Several real Kafka brokers that replicate to each other, for tests in which leaders move."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata, PartitionMetadata

from cdc_sink_kafka.demo.broker import KafkaBroker
from cdc_sink_kafka.demo.client import admin_client
from cdc_sink_kafka.demo.java_process import free_port
from cdc_sink_kafka.demo.java_server import Server
from cdc_sink_kafka.demo.listeners import KafkaSecurity

_LIMIT_S = 600.0
"""How long to wait for elections and replicas. They take seconds, or minutes on a machine that is overloaded."""
_PAUSE_S = 0.1


class KafkaCluster(Server):
    """*nodes* brokers, each also a controller. A context manager: it starts all brokers and kills them in the end.

    Topics have as many replicas as there are nodes and need a majority of them in sync: of three nodes, one may be
    down. Use `brokers` to kill and start single brokers.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        nodes: int = 3,
        settings: Mapping[str, str] | None = None,
        security: KafkaSecurity | None = None,
    ) -> None:
        super().__init__(directory, prefix="cdc-kafka-")
        ports = [free_port() for _ in range(nodes)]
        self.brokers = tuple(
            KafkaBroker(
                self.directory / f"broker-{node}",
                settings=settings,
                security=security,
                node_id=node,
                controller_ports=ports,
            )
            for node in range(1, nodes + 1)
        )

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers for clients without TLS or passwords."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def start(self) -> None:
        """Return when all brokers answer. Raises: as `KafkaBroker.start`."""
        with ThreadPoolExecutor(len(self.brokers)) as starters:
            for started in [starters.submit(broker.start) for broker in self.brokers if not broker.running]:
                started.result()

    def kill(self) -> None:
        """Kill all brokers."""
        for broker in self.brokers:
            broker.kill()

    def leader(self, topic: str, partition: int) -> KafkaBroker | None:
        """Return the broker that leads the partition now, None while there is no leader."""
        with admin_client(self.bootstrap_servers) as admin:
            found = _metadata(admin).topics[topic].partitions[partition].leader
        return next((broker for broker in self.brokers if broker.node_id == found), None)

    def elect_preferred_leaders(self) -> None:
        """Return when the first replica of every partition leads it, as before any failure. Raises: TimeoutError."""

        def not_preferred(cluster: ClusterMetadata) -> list[str]:
            return _where(cluster, lambda partition: partition.leader != partition.replicas[0])

        def elect(admin: AdminClient) -> None:
            with suppress(KafkaException):  # the replica may not be in sync yet
                admin.elect_leaders(ElectionType.PREFERRED).result()

        self._await(not_preferred, "not led by the first replica", meanwhile=elect)

    def await_in_sync(self) -> None:
        """Return when every replica of every partition is in sync: the next broker may fail. Raises: TimeoutError."""

        def behind(cluster: ClusterMetadata) -> list[str]:
            return _where(cluster, lambda found: found.leader < 0 or set(found.isrs) != set(found.replicas))

        self._await(behind, "replicas not in sync")

    def _await(
        self,
        offending: Callable[[ClusterMetadata], list[str]],
        problem: str,
        *,
        meanwhile: Callable[[AdminClient], None] | None = None,
    ) -> None:
        """Return when *offending* finds no partition. Otherwise call *meanwhile* and ask again."""
        deadline = time.monotonic() + _LIMIT_S
        pause = threading.Event()
        with admin_client(self.bootstrap_servers) as admin:
            while found := offending(_metadata(admin)):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"after {_LIMIT_S:.0f} s, {problem}: {', '.join(found)}")
                if meanwhile is not None:
                    meanwhile(admin)
                pause.wait(_PAUSE_S)


def _metadata(admin: AdminClient) -> ClusterMetadata:
    """Return what the brokers report. A broker that has just been killed is not an error: another one is asked."""
    deadline = time.monotonic() + _LIMIT_S
    while True:
        try:
            return admin.list_topics(timeout=10)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        threading.Event().wait(_PAUSE_S)


def _where(cluster: ClusterMetadata, condition: Callable[[PartitionMetadata], bool]) -> list[str]:
    return [
        f"{name}/{number}"
        for name, topic in cluster.topics.items()
        for number, partition in topic.partitions.items()
        if condition(partition)
    ]
