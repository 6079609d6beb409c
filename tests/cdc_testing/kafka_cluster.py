"""Real Kafka brokers that replicate to each other, for tests in which leaders move."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from cdc_sink_kafka.demo.broker import KafkaBroker
from cdc_sink_kafka.demo.client import admin_client
from cdc_sink_kafka.demo.java_process import free_port
from cdc_sink_kafka.demo.java_server import Server
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient

_LIMIT_S = 600.0
"""How long to wait for elections. They take seconds, or minutes on a machine that is overloaded."""
_PAUSE_S = 0.1


class KafkaCluster(Server):
    """Three brokers, each also a controller. A context manager: it starts all brokers and kills them in the end.

    Topics have a replica on each, and need two of them in sync, so one broker may be down. Use `brokers` to kill and
    start single brokers.
    """

    def __init__(self) -> None:
        super().__init__(None, prefix="cdc-kafka-")
        ports = [free_port() for _ in range(3)]
        self.brokers = tuple(
            KafkaBroker(self.directory / f"broker-{node}", node_id=node, controller_ports=ports) for node in (1, 2, 3)
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
            found = _partitions(admin)[topic][partition].leader
        return next((broker for broker in self.brokers if broker.node_id == found), None)

    def elect_preferred_leaders(self) -> None:
        """Return when the first replica of every partition leads it, as before any failure. Raises: TimeoutError."""
        deadline = time.monotonic() + _LIMIT_S
        with admin_client(self.bootstrap_servers) as admin:
            while others := [
                f"{name}/{number}"
                for name, partitions in _partitions(admin).items()
                for number, partition in partitions.items()
                if partition.leader != partition.replicas[0]
            ]:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"after {_LIMIT_S:.0f} s, not led by the first replica: {', '.join(others)}")
                with suppress(KafkaException):  # the replica may not be in sync yet
                    admin.elect_leaders(ElectionType.PREFERRED).result()
                threading.Event().wait(_PAUSE_S)


def _partitions(admin: AdminClient) -> dict[str, dict[int, Any]]:
    """Return the partitions of each topic. A broker that has just been killed is not an error: another one is asked."""
    deadline = time.monotonic() + _LIMIT_S
    while True:
        try:
            return {name: topic.partitions for name, topic in admin.list_topics(timeout=10).topics.items()}
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        threading.Event().wait(_PAUSE_S)
