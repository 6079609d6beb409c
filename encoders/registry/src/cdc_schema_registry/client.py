"""The HTTP client: confluent-kafka's, one for each address in each process."""

from __future__ import annotations

import atexit
import logging
import os
import ssl
import tempfile
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from cdc_core.errors import ConfigError
from cdc_schema_registry.address import RegistryAddress

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

__all__ = ["client_of"]

_clients: dict[RegistryAddress, SchemaRegistryClient] = {}
_lock = Lock()
_HTTP_LOGGERS = ("httpx", "httpx2")
"""The client's HTTP library, by the names that it has had."""


def client_of(address: RegistryAddress) -> SchemaRegistryClient:
    """Return this process's client of the registry at *address*. Raises: ConfigError for unusable certificates."""
    with _lock:
        client = _clients.get(address)
        if client is None:
            client = _clients[address] = _new_client(address)
        return client


def _new_client(address: RegistryAddress) -> SchemaRegistryClient:
    # here and not above: most processes import this package and never talk to a registry
    from confluent_kafka.schema_registry import SchemaRegistryClient

    for name in _HTTP_LOGGERS:
        http = logging.getLogger(name)
        if http.level == logging.NOTSET:
            # it tells of every request, also of questions to which "not found" is the answer that was hoped for
            http.setLevel(logging.WARNING)
    configuration: dict[str, Any] = {
        "url": address.url,
        "timeout": address.timeout_s,
        # the engine repeats the whole step, so only a short trouble is sat out here
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
    # the client takes certificates from files only, and reads them while it is built
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
                f"the certificates for the schema registry {address} cannot be used ({error.reason or error}); "
                "ca_cert, client_cert and client_key must be PEM, the key without a password and the certificate's own"
            ) from None


def _close() -> None:
    for client in _clients.values():
        client.close()
    _clients.clear()


def _forget() -> None:
    """Start anew in a forked child: connections and locks are the parent's."""
    global _lock
    _clients.clear()
    _lock = Lock()


atexit.register(_close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
