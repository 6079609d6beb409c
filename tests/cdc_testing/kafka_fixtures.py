"""Fixtures of real brokers and registries: started here, or external ones that the environment names.

A test whose server cannot start fails. It is never skipped.
"""

from __future__ import annotations

import json
import os
import secrets
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

import pytest
from cdc_sink_kafka.demo.servers import (
    Certificates,
    make_certificates,
)
from cdc_testing.registry_proxy import RegistryProxy
from cdc_testing.shared_servers import KAFKA_PASSWORD, KAFKA_USER, SERVERS, SecuredKafka

__all__ = ["KAFKA_PASSWORD", "KAFKA_USER", "QUICK_RETURN", "Kafka", "ProxyFactory", "Registry"]

QUICK_RETURN = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
"""With these settings a killed broker can rejoin two seconds sooner. Do not use them for several brokers: they would
lose contact with each other."""


class Kafka(Protocol):
    """A broker, as clients see it."""

    @property
    def bootstrap_servers(self) -> str: ...


class Registry(Protocol):
    """A schema registry, as clients see it."""

    @property
    def url(self) -> str: ...


class ProxyFactory(Protocol):
    """Starts a proxy of the session's registry that ends with the test."""

    def __call__(
        self,
        *,
        user: str | None = None,
        password: str | None = None,
        certificates: Certificates | None = None,
        demand_client_certificate: bool = False,
    ) -> RegistryProxy: ...


@dataclass(frozen=True, slots=True)
class _SharedKafka:
    bootstrap_servers: str


@dataclass(frozen=True, slots=True)
class _SharedRegistry:
    url: str


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config) -> Kafka:
    """The broker of the whole run: KAFKA_BOOTSTRAP_SERVERS if that is set. Use `topic_prefix` for topics.

    Tests that kill or pause a broker start their own.
    """
    return _SharedKafka(os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or pytestconfig.stash[SERVERS].kafka())


@pytest.fixture(scope="session")
def schema_registry(pytestconfig: pytest.Config) -> Registry:
    """The registry of the whole run: SCHEMA_REGISTRY_URL if that is set. Use `topic_prefix` for subjects, too."""
    return _SharedRegistry(os.environ.get("SCHEMA_REGISTRY_URL") or pytestconfig.stash[SERVERS].registry())


@pytest.fixture
def set_compatibility(schema_registry: Registry) -> Callable[[str, str], None]:
    """Sets the compatibility of a subject: `set_compatibility(subject, "FULL")`."""

    def set_to(subject: str, level: str) -> None:
        request = urllib.request.Request(
            f"{schema_registry.url}/config/{quote(subject, safe='')}",
            data=json.dumps({"compatibility": level}).encode(),
            method="PUT",
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()

    return set_to


@pytest.fixture
def topic_prefix() -> str:
    """A prefix for topics and subjects that no other test uses, on any server."""
    return f"t{secrets.token_hex(5)}_"


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of a test authority, for servers on loopback and for a client."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def secured_broker(pytestconfig: pytest.Config) -> SecuredKafka:
    """A broker with all listeners, for the whole run: `secured_broker.address("SASL_SSL")`.

    KAFKA_USER can log in with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, and everybody with an unsigned token through
    SASL_PLAINTEXT. The broker uses and demands `secured_broker.certificates`. Its PLAINTEXT listener is for reading
    what arrived, as the user ANONYMOUS, whom tests may deny rights on their topics.
    """
    return pytestconfig.stash[SERVERS].secured_kafka()


@pytest.fixture
def registry_proxy(schema_registry: Registry) -> Iterator[ProxyFactory]:
    """Starts proxies for the session's registry that demand a password, TLS or a client certificate, or that fail."""
    with ExitStack() as stack:

        def proxy(
            *,
            user: str | None = None,
            password: str | None = None,
            certificates: Certificates | None = None,
            demand_client_certificate: bool = False,
        ) -> RegistryProxy:
            return stack.enter_context(
                RegistryProxy(
                    schema_registry.url,
                    user=user,
                    password=password,
                    certificates=certificates,
                    demand_client_certificate=demand_client_certificate,
                )
            )

        yield proxy
