"""Several real Kafka brokers that replicate to each other, for what only several show: leaders that move."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import ElectionType
from confluent_kafka.admin._metadata import ClusterMetadata

from cdc_sink_kafka.demo.broker import KafkaBroker
from cdc_sink_kafka.demo.client import admin_client
from cdc_sink_kafka.demo.java_process import free_port
from cdc_sink_kafka.demo.java_server import Server
from cdc_sink_kafka.demo.listeners import KafkaSecurity

__all__ = ["KafkaCluster"]


class KafkaCluster(Server):
    """*nodes* brokers, each also a controller; entering starts all, leaving ends all.

    Topics get as many replicas as there are nodes and need a majority of them in sync, so that with three nodes one
    may be down. Brokers fail and return one by one through `brokers`.
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
        """Addresses of all brokers for clients without TLS and passwords."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def start(self) -> None:
        """Return when all brokers answer. Raises: as `KafkaBroker.start`."""
        with ThreadPoolExecutor(len(self.brokers)) as starters:
            for started in [starters.submit(broker.start) for broker in self.brokers if not broker.running]:
                started.result()

    def kill(self) -> None:
        """End all brokers by SIGKILL."""
        for broker in self.brokers:
            broker.kill()

    def leader(self, topic: str, partition: int) -> KafkaBroker | None:
        """Return the broker that leads the partition now, None while there is none."""
        with admin_client(self.bootstrap_servers) as admin:
            found = admin.list_topics(topic, timeout=10).topics[topic].partitions[partition].leader
        return next((broker for broker in self.brokers if broker.node_id == found), None)

    def elect_preferred_leaders(self) -> None:
        """Move the leadership of every partition to its first replica, back from where failures moved it."""
        with admin_client(self.bootstrap_servers) as admin:
            admin.elect_leaders(ElectionType.PREFERRED).result(timeout=30)

    def await_in_sync(self, *, limit_s: float = 60.0) -> None:
        """Return when every replica of every partition has all: then the next broker may fail. Raises: RuntimeError."""
        deadline = time.monotonic() + limit_s
        pause = threading.Event()
        with admin_client(self.bootstrap_servers) as admin:
            while behind := _behind(admin.list_topics(timeout=10)):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"after {limit_s:.0f} s replicas are still behind: {', '.join(behind)}")
                pause.wait(0.1)


def _behind(cluster: ClusterMetadata) -> list[str]:
    return [
        f"{name}/{number}"
        for name, topic in cluster.topics.items()
        for number, partition in topic.partitions.items()
        if partition.leader < 0 or set(partition.isrs) != set(partition.replicas)
    ]
