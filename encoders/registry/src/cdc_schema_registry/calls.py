"""Requests to a registry, and their errors as errors of a changefeed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from cdc_core import CdcError
from cdc_schema_registry.address import RegistryAddress
from cdc_schema_registry.client import client_of

__all__ = [
    "NO_LEVEL",
    "NO_SCHEMA",
    "NO_SUBJECT",
    "NO_VERSION",
    "RefusedError",
    "get",
    "in_subject",
    "post",
    "translated",
]

NO_SUBJECT, NO_VERSION, NO_SCHEMA, NO_LEVEL = 40401, 40402, 40403, 40408
"""Error codes of a registry for something that does not exist."""
_BUSY = frozenset({408, 425, 429})


class RefusedError(Exception):
    """The registry responded with an error. `status` is the HTTP status, `code` the registry's error code."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{' '.join(message.split())} (HTTP {status})")
        self.status = status
        self.code = code


def get(address: RegistryAddress, path: str) -> Any:
    """Return the response. Raises: RefusedError, and any error of the HTTP client."""
    return _ask(lambda: client_of(address)._rest_client.get(path))


def post(address: RegistryAddress, path: str, body: dict[str, Any]) -> Any:
    """Return the response. Raises: RefusedError, and any error of the HTTP client."""
    return _ask(lambda: client_of(address)._rest_client.post(path, body=body))


def in_subject(subject: str, path: str = "") -> str:
    """Return the URL path of *path* in *subject*."""
    return f"subjects/{quote(subject, safe='')}{path}"


def translated(
    address: RegistryAddress, about: str, error: Exception, *, refused: type[CdcError], unreachable: type[CdcError]
) -> CdcError:
    """Return *error* of a request for *about* as *refused* or *unreachable*; a CdcError unchanged.

    The message contains the error of the registry or the network, and the registry's URL without credentials.
    """
    if isinstance(error, CdcError):
        return error
    if not isinstance(error, RefusedError):
        # An error of the network, or a response of another kind of server. The client's HTTP library varies.
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        hint = "; set 'ca_cert' to the certificate of its authority" if "CERTIFICATE_VERIFY_FAILED" in reason else ""
        return unreachable(f"schema registry {address} is unreachable or not a registry: {reason}{hint}")
    if error.status in (401, 403):
        what = "rejected the credentials" if error.status == 401 else "denied access"
        return refused(
            f"schema registry {address} {what} ({error}); set 'confluent_schema_registry' to a URL with the user and "
            f"password, percent-encoded, of a user who may read and write {about}"
        )
    if error.status == 404:
        return refused(
            f"schema registry {address} was not found: {error}; 'confluent_schema_registry' must include the path of "
            "its Confluent-compatible API"
        )
    if error.status in _BUSY or error.status >= 500:
        return unreachable(f"schema registry {address} is unavailable for {about}: {error}")
    return refused(f"schema registry {address} refused a request for {about}: {error}")


def _ask(request: Callable[[], Any]) -> Any:
    # The client's methods return no reasons for incompatibility, and cache too much. Only its connection is used, which
    # has authentication, TLS and retries.
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        return request()
    except SchemaRegistryError as error:
        raise RefusedError(error.http_status_code, error.error_code, str(error.error_message)) from None
