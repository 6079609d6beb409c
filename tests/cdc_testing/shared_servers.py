"""Servers that all processes of a test run share, as their start is dear: a Kafka broker and a schema registry.

The first process of the run, which hands out the tests, starts a server when a worker first asks for its address, and
ends it after the last test.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.managers import BaseManager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Any

import pytest
from cdc_sink_kafka.demo.servers import (
    Certificates,
    KafkaBroker,
    KafkaSecurity,
    Listener,
    SchemaRegistry,
    make_certificates,
)

KAFKA_USER = "alice"
KAFKA_PASSWORD = "Wonder/land+&%40 secret"
"""The password of KAFKA_USER at `secured_broker`. A URI must percent-encode it."""

_WORKER_INPUT = "cdc_servers"
_LISTENERS: tuple[Listener, ...] = ("PLAINTEXT", "SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")
_BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
_STRICT = {
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": _BEARER,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
# Kafka's own pace of heartbeats, as this broker is never killed, no empty records, and fewer threads that poll: that is
# most of what a broker takes while it has nothing to do.
_QUIET = {
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
    "metadata.max.idle.interval.ms": "0",
    "num.io.threads": "4",
    "num.network.threads": "1",
}


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """A broker with all listeners, and the certificates that it uses and demands."""

    addresses: dict[Listener, str]
    certificates: Certificates

    @property
    def bootstrap_servers(self) -> str:
        return self.address("PLAINTEXT")

    def address(self, listener: Listener) -> str:
        return self.addresses[listener]


class Servers:
    """The servers of a run. Safe for several threads."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._lock = Lock()
        self._registry: str | None = None
        self._secured: SecuredKafka | None = None

    def kafka(self) -> str:
        """Return the bootstrap servers of the run's broker, for clients without TLS or passwords."""
        return self.secured_kafka().bootstrap_servers

    def registry(self) -> str:
        """Return the URL of the run's schema registry."""
        with self._lock:
            if self._registry is None:
                self._registry = self._stack.enter_context(SchemaRegistry()).url
            return self._registry

    def secured_kafka(self) -> SecuredKafka:
        """Return the run's broker, which also has listeners with passwords, tokens and TLS."""
        with self._lock:
            if self._secured is None:
                directory = Path(self._stack.enter_context(TemporaryDirectory(prefix="cdc-certificates-")))
                certificates = make_certificates(directory)
                security = KafkaSecurity(certificates=certificates, users={KAFKA_USER: KAFKA_PASSWORD})
                broker = self._stack.enter_context(KafkaBroker(settings={**_STRICT, **_QUIET}, security=security))
                self._secured = SecuredKafka({name: broker.address(name) for name in _LISTENERS}, certificates)
            return self._secured

    def close(self) -> None:
        self._stack.close()


class _Manager(BaseManager):
    """Passes the calls of workers to the servers of the first process."""


SERVERS = pytest.StashKey[Servers]()
"""Where the configuration has what starts servers: `Servers`, or in a worker its proxy."""


def pytest_configure(config: pytest.Config) -> None:
    address = getattr(config, "workerinput", {}).get(_WORKER_INPUT)
    if address is None:
        config.stash[SERVERS] = Servers()
        return
    _Manager.register("servers")
    manager = _Manager(address=address[0], authkey=address[1])
    manager.connect()
    config.stash[SERVERS] = manager.servers()  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker where it can ask."""
    node.workerinput[_WORKER_INPUT] = _listening(node.config)


_LISTENING = pytest.StashKey[tuple[Any, bytes]]()


def _listening(config: pytest.Config) -> tuple[Any, bytes]:
    if _LISTENING not in config.stash:
        servers, key = config.stash[SERVERS], secrets.token_bytes(16)
        _Manager.register("servers", callable=lambda: servers, exposed=("kafka", "registry", "secured_kafka"))
        server = _Manager(address=("127.0.0.1", 0), authkey=key).get_server()
        Thread(target=server.serve_forever, daemon=True, name="shared servers").start()
        config.stash[_LISTENING] = (server.address, key)
    return config.stash[_LISTENING]


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[SERVERS].close()
