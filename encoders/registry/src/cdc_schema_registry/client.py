"""The HTTP client of confluent-kafka, one for each address in each process."""

from __future__ import annotations

import atexit
import logging
import os
import ssl
import tempfile
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from cdc_core import ConfigError
from cdc_schema_registry.address import RegistryAddress

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

_clients: dict[RegistryAddress, SchemaRegistryClient] = {}
_lock = Lock()
_HTTP_LOGGERS = ("httpx", "httpx2")
"""Logger names of the client's HTTP library, which differ between versions."""


def client_of(address: RegistryAddress) -> SchemaRegistryClient:
    """Return this process's client of the registry at *address*. Raises: ConfigError for unusable certificates."""
    with _lock:
        client = _clients.get(address)
        if client is None:
            client = _clients[address] = _new_client(address)
        return client


def _new_client(address: RegistryAddress) -> SchemaRegistryClient:
    # A local import: most processes import this package without sending a request.
    from confluent_kafka.schema_registry import SchemaRegistryClient

    for name in _HTTP_LOGGERS:
        http = logging.getLogger(name)
        if http.level == logging.NOTSET:
            # It logs every request, including those for which "not found" is the expected response.
            http.setLevel(logging.WARNING)
    configuration: dict[str, Any] = {
        "url": address.url,
        "timeout": address.timeout_s,
        # Retries bridge only short failures: the engine repeats the whole step.
        "max.retries": 1,
        "retries.wait.ms": 200,
        "retries.max.wait.ms": 500,
    }
    if address.user is not None:
        configuration["basic.auth.user.info"] = f"{address.user}:{address.password}"
    if address.insecure_tls_skip_verify:
        configuration["ssl.ca.location"] = False
    files = {
        "ssl.ca.location": address.ca_cert,
        "ssl.certificate.location": address.client_cert,
        "ssl.key.location": address.client_key,
    }
    # The client reads certificates only from files, when it is created.
    with tempfile.TemporaryDirectory(prefix="cdc-registry-") as directory:
        for name, pem in files.items():
            if pem is not None:
                path = Path(directory, name)
                path.touch(mode=0o600)
                path.write_text(pem)
                configuration[name] = str(path)
        try:
            return SchemaRegistryClient(configuration)
        except ssl.SSLError as error:
            raise ConfigError(
                f"invalid certificates for schema registry {address} ({error.reason or error}); ca_cert, client_cert "
                "and client_key must be PEM, and the key must have no password and belong to the certificate"
            ) from None


def _close() -> None:
    for client in _clients.values():
        client.close()
    _clients.clear()


def _forget() -> None:
    """Forget the parent's connections and lock in a forked child."""
    global _lock
    _clients.clear()
    _lock = Lock()


atexit.register(_close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
