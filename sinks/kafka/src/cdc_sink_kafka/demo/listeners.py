"""The listeners of a broker and what each demands of clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cdc_sink_kafka.demo.certificates import Certificates

Listener = Literal["PLAINTEXT", "SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL"]
"""Each has its own port and accepts nothing else. MTLS is SSL that demands a client certificate."""

_PROTOCOLS = {"MTLS": "SSL", "CONTROLLER": "PLAINTEXT"}
_SCRAM = ("scram-sha-256", "scram-sha-512")
_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSecurity:
    """Certificates and users of a secured broker. *users* maps names to passwords, for PLAIN and for both SCRAMs.

    PLAINTEXT stays open, for connections between brokers and for tests that read what arrived.
    """

    certificates: Certificates
    users: Mapping[str, str] = field(repr=False)


def listener_settings(
    ports: Mapping[Listener, int], *, controller_port: int, security: KafkaSecurity | None, directory: Path
) -> dict[str, str]:
    """Return the settings in `server.properties` for *ports*. Writes a key store to *directory*."""
    everything: dict[str, int] = {**{str(name): port for name, port in ports.items()}, "CONTROLLER": controller_port}
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in everything.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{_PROTOCOLS.get(name, name)}" for name in everything),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    if security is not None:
        settings |= _tls(security.certificates, directory / "keystore.pem")
        settings |= _sasl(security.users)
    return settings


def _tls(certificates: Certificates, keystore: Path) -> dict[str, str]:
    keystore.touch(0o600)
    keystore.write_bytes(certificates.server_key.read_bytes() + certificates.server_cert.read_bytes())
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.mtls.ssl.client.auth": "required",
    }


def _sasl(users: Mapping[str, str]) -> dict[str, str]:
    known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    settings = {"sasl.enabled.mechanisms": ",".join(["PLAIN", *(name.upper() for name in _SCRAM)])}
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        settings[f"{prefix}.plain.sasl.jaas.config"] = f"{_MODULES}.plain.PlainLoginModule required {known};"
        for mechanism in _SCRAM:
            settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{_MODULES}.scram.ScramLoginModule required;"
    return settings
