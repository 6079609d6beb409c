"""TLS: the certificate of the server, and whose certificates it accepts."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from typing import Any

from cdc_core.errors import ConfigError
from cdc_core.web.access.callers import stamp_of
from cdc_core.web.access.settings import AccessSettings

log = logging.getLogger(__name__)

_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "emailAddress",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "userId": "UID",
}


class TlsFiles:
    """The TLS settings of a server. A connection uses the files as they are when it begins: renewals need no restart.

    Raises: ConfigError when a file cannot be used.
    """

    def __init__(self, settings: AccessSettings) -> None:
        assert settings.tls_cert is not None
        assert settings.tls_key is not None
        self._cert, self._key, self._ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
        self._seen = self._stamps()
        self._context = self._loaded()

    def context(self) -> ssl.SSLContext:
        """Return the settings for the next connection."""
        stamps = self._stamps()
        if stamps != self._seen:
            self._seen = stamps
            try:
                self._context = self._loaded()
            except ConfigError as error:
                log.error("%s; the previous files stay in use", error)
        return self._context

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._cert, self._key, password=_no_password)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise ConfigError(
                f"--tls-cert {self._cert}, --tls-key {self._key}: this pair cannot be used: {_reason(error)}; use PEM"
                " files with a certificate and its unencrypted key"
            ) from error
        if self._ca is not None:
            try:
                context.load_verify_locations(self._ca)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"--tls-client-ca {self._ca}: this file cannot be used: {_reason(error)}; use a PEM file with the"
                    " certificates of authorities"
                ) from error
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _stamps(self) -> list[tuple[int, ...] | None]:
        return [stamp_of(path) for path in (self._cert, self._key, self._ca) if path is not None]


def subject_of(certificate: Mapping[str, Any]) -> str:
    """Return the subject of a certificate, as `getpeercert` has it, such as `CN=ann,OU=Data,O=Shop`."""
    parts = [f"{_SHORT.get(name, name)}={_escaped(value)}" for names in certificate["subject"] for name, value in names]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    return "".join(f"\\{character}" if character in ',+"\\<>;=' else character for character in value)


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it contains no PEM").lower().replace("_", " ")
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
