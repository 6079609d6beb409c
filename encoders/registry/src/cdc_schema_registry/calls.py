"""Requests to a registry, and what its errors and the network's mean to a changefeed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from cdc_core.errors import CdcError
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
"""Error codes of a registry that looked and found nothing."""
_BUSY = frozenset({408, 425, 429})


class RefusedError(Exception):
    """The registry answered with an error. `status` is HTTP's, `code` the registry's own."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{' '.join(message.split())} (HTTP {status})")
        self.status = status
        self.code = code


def get(address: RegistryAddress, path: str) -> Any:
    """Return the answer. Raises: RefusedError; anything else that a network does."""
    return _ask(lambda: client_of(address)._rest_client.get(path))


def post(address: RegistryAddress, path: str, body: dict[str, Any]) -> Any:
    """Return the answer. Raises: RefusedError; anything else that a network does."""
    return _ask(lambda: client_of(address)._rest_client.post(path, body=body))


def in_subject(subject: str, path: str = "") -> str:
    """Return the path of *subject*, and of what is below it."""
    return f"subjects/{quote(subject, safe='')}{path}"


def translated(
    address: RegistryAddress, about: str, error: Exception, *, refused: type[CdcError], unreachable: type[CdcError]
) -> CdcError:
    """Return *error*, which a request about *about* met, as *refused* or *unreachable*; our own errors as they are.

    The message holds what the registry or the network said, and the registry's URL without credentials.
    """
    if isinstance(error, CdcError):
        return error
    if not isinstance(error, RefusedError):
        # the network's errors, or answers of something that is no registry; the client's HTTP library varies
        said = str(error) or type(error).__name__
        hint = "; give its authority's certificate as 'ca_cert'" if "CERTIFICATE_VERIFY_FAILED" in said else ""
        return unreachable(f"the schema registry {address} is out of reach, or no registry: {said}{hint}")
    if error.status in (401, 403):
        what = "does not accept the credentials" if error.status == 401 else "forbids this user the request"
        return refused(
            f"the schema registry {address} {what} ({error}); 'confluent_schema_registry' must have user and password, "
            f"percent-encoded, of one who may read and write {about}"
        )
    if error.status == 404:
        return refused(
            f"there is no schema registry at {address}: {error}; 'confluent_schema_registry' must have the path of its "
            "Confluent-compatible API"
        )
    if error.status in _BUSY or error.status >= 500:
        return unreachable(f"the schema registry {address} cannot answer for {about} now: {error}")
    return refused(f"the schema registry {address} refuses a request for {about}: {error}")


def _ask(request: Callable[[], Any]) -> Any:
    # The client's own methods give no reasons for incompatibility, and cache what must not be cached: hence its
    # connection alone, which has authentication, TLS and retries.
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        return request()
    except SchemaRegistryError as error:
        raise RefusedError(error.http_status_code, error.error_code, str(error.error_message)) from None
