"""Requests to a registry, and their errors as errors of a changefeed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from cdc_core import CdcError, ConfigError, RetryableError, TerminalError
from cdc_schema_registry.address import RegistryAddress
from cdc_schema_registry.client import client_of

_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA, _NO_LEVEL = 40401, 40402, 40403, 40408
"""Error codes of a registry for something that does not exist."""
READ_ONLY = 42205
"""The error code of a registry whose mode, or that of a subject, allows no new versions."""
_BUSY = frozenset({408, 425, 429})
_MAX_SHOWN = 100
_UNTRUSTED = re.compile("CERTIFICATE_VERIFY_FAILED|_ALERT_(?!INTERNAL_ERROR)")
_OPTION = "confluent_schema_registry"


class RefusedError(Exception):
    """The registry responded with an error. `status` is the HTTP status, `code` the registry's error code."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{' '.join(message.split())} (HTTP {status})")
        self.status = status
        self.code = code


class OddAnswerError(Exception):
    """A registry does not answer like this. The text is the beginning of the answer, in one line."""


def get(address: RegistryAddress, path: str, **members: type) -> dict[str, Any]:
    """Return the response, an object with these *members*, each of its type.

    Raises: RefusedError, OddAnswerError, and any error of the HTTP client.
    """
    return _ask(lambda: client_of(address)._rest_client.get(path), members)


def post(address: RegistryAddress, path: str, body: dict[str, Any], **members: type) -> dict[str, Any]:
    """Return the response to *body*, an object with these *members*. Raises: as `get`."""
    return _ask(lambda: client_of(address)._rest_client.post(path, body=body), members)


def or_none(request: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Return the response, None when the registry found nothing."""
    try:
        return request()
    except RefusedError as error:
        if error.code in (_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA, _NO_LEVEL):
            return None
        raise


def in_subject(subject: str, path: str = "") -> str:
    """Return the URL path of *path* in *subject*."""
    return f"subjects/{quote(subject, safe='')}{path}"


def translated(address: RegistryAddress, about: str, error: Exception, *, checking: bool) -> CdcError:
    """Return *error* of a request for *about* as an error of a run, or of a check before it; a CdcError unchanged.

    The message contains the error of the registry or the network, and the registry's URL without credentials.
    """

    def unreachable(text: str, *, outage: bool = True) -> CdcError:
        return ConfigError(text, repairable=True) if checking else RetryableError(text, outage=outage)

    refused = ConfigError if checking else TerminalError
    if isinstance(error, CdcError):
        return error
    if _is_odd(error):
        return unreachable(
            f"schema registry {address} did not answer like a registry when asked for {about}: it answered {error};"
            f" '{_OPTION}' must be the URL of a Confluent-compatible API, not of a proxy or login page",
            outage=False,
        )
    if not isinstance(error, RefusedError):
        # An error of the network. The client's HTTP library varies.
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if _UNTRUSTED.search(reason):
            return refused(
                f"schema registry {address} and this client do not trust each other: {reason}; set 'ca_cert' to the"
                " certificate of its authority, and 'client_cert' and 'client_key' if the registry requires them, or"
                " renew the certificates",
                repairable=True,
            )
        return unreachable(f"schema registry {address} is unreachable: {reason}")
    if error.status in (401, 403):
        what = "rejected the credentials" if error.status == 401 else "denied access"
        return refused(
            f"schema registry {address} {what} ({error}); set '{_OPTION}' to a URL with the user and password, "
            f"percent-encoded, of a user who may read and write {about}",
            repairable=True,
        )
    if error.status in (404, 407):
        what = "was not found" if error.status == 404 else "is behind a proxy that refuses the request"
        return refused(
            f"schema registry {address} {what}: {error}; '{_OPTION}' must include the path of its "
            "Confluent-compatible API",
            repairable=True,
        )
    if error.code == READ_ONLY:
        return refused(
            f"schema registry {address} takes no new version of {about}: {error}; set its mode to READWRITE",
            repairable=True,
        )
    if error.status in _BUSY or error.status >= 500:
        return unreachable(f"schema registry {address} is unavailable for {about}: {error}")
    return refused(f"schema registry {address} refused a request for {about}: {error}")


def _is_odd(error: Exception) -> bool:
    """Return whether *error* says that something answered, and not like a registry."""
    protocol = any(cls.__name__ in ("ProtocolError", "DecodingError") for cls in type(error).__mro__)
    return isinstance(error, OddAnswerError) or (protocol and "disconnected" not in str(error))


def _ask(request: Callable[[], Any], members: dict[str, type]) -> dict[str, Any]:
    # The client's methods return no reasons for incompatibility, and cache too much. Only its connection is used, which
    # has authentication, TLS and retries.
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        answer = request()
    except SchemaRegistryError as error:
        if error.http_status_code < 400:
            raise OddAnswerError(f"HTTP {error.http_status_code}") from None
        message = str(error.error_message or "no details")
        raise RefusedError(error.http_status_code, error.error_code, message) from None
    except ValueError as error:  # it is not JSON
        raise OddAnswerError(_shown(getattr(error, "doc", None) or str(error))) from None
    if isinstance(answer, dict) and all(isinstance(answer.get(name), kind) for name, kind in members.items()):
        return answer
    raise OddAnswerError("nothing" if answer is None else _shown(json.dumps(answer)))


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return f"'{line if len(line) <= _MAX_SHOWN else line[:_MAX_SHOWN] + '…'}'"
