"""A schema registry, for encoders: registering schemas while rows flow, and checking them before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from cdc_core.errors import CdcError, ConfigError, RetryableError, TerminalError
from cdc_schema_registry.address import RegistryAddress
from cdc_schema_registry.client import client_of

__all__ = ["Registry", "SchemaType"]

SchemaType = Literal["AVRO", "JSON"]

_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
_INCOMPATIBLE = 409
_MISSING = 404
_BUSY = frozenset({408, 425, 429})
_UNAUTHORIZED = {401: "does not accept the credentials", 403: "forbids this user to use it"}

_ids: dict[tuple[RegistryAddress, str, SchemaType, str], int] = {}
"""What this process has registered. Ids never change, so nothing is ever dropped; a fork may keep it."""


@dataclass(frozen=True, slots=True)
class Registry:
    """The registry at an address. Picklable, and as cheap as its address: connections and ids belong to the process.

    Schemas are texts; two texts are two schemas, so callers write them in one canonical form. Messages name the
    registry without its credentials.
    """

    address: RegistryAddress

    @classmethod
    def of(cls, text: str, *, owner: str) -> Registry:
        """Return the registry that the option `confluent_schema_registry` says. Connects to nothing.

        Raises: OptionError naming *owner*, such as "encoder 'avro'".
        """
        return cls(RegistryAddress.parse(text, owner=owner))

    def register(self, subject: str, schema: str, schema_type: SchemaType) -> int:
        """Return the id of *schema* in *subject*, where it is registered now.

        Asks the registry once in a process for each pair; every other call is a look-up in a dict.

        Raises: RetryableError when the registry is out of reach or busy. TerminalError when it refuses: wrong
        credentials, an invalid schema, or one that is incompatible with what is registered; then both are named.
        """
        known = (self.address, subject, schema_type, schema)
        schema_id = _ids.get(known)
        if schema_id is None:
            with self._translated(TerminalError, RetryableError, subject, schema, schema_type):
                path = f"subjects/{_quoted(subject)}/versions"
                schema_id = _ids[known] = int(self._post(path, schema, schema_type)["id"])
        return schema_id

    def check(self, subject: str, schema: str, schema_type: SchemaType) -> None:
        """Return when `register` could be called with the same arguments. Changes nothing.

        Whether the user may also write cannot be found out without writing.

        Raises: ConfigError when the registry is out of reach, refuses the credentials, or would refuse the schema.
        """
        with self._translated(ConfigError, ConfigError, subject, schema, schema_type):
            if self._is_registered(subject, schema, schema_type):
                return
            reason = self._conflict(subject, schema, schema_type)
        if reason is not None:
            raise ConfigError(self._incompatible(subject, schema, reason))

    def _is_registered(self, subject: str, schema: str, schema_type: SchemaType) -> bool:
        """Return whether *subject* has *schema* in one of its versions; such a schema is never refused."""
        try:
            self._post(f"subjects/{_quoted(subject)}", schema, schema_type)
        except _registry_error() as error:
            if error.error_code in (_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA):
                return False
            raise
        return True

    def _conflict(self, subject: str, schema: str, schema_type: SchemaType) -> str | None:
        """Return what the registry has against *schema* as the next version of *subject*, or None."""
        path = f"compatibility/subjects/{_quoted(subject)}/versions?verbose=true"
        try:
            answer = self._post(path, schema, schema_type)
        except _registry_error() as error:
            if error.error_code in (_NO_SUBJECT, _NO_VERSION):
                return None
            raise
        if answer.get("is_compatible", True):
            return None
        return "; ".join(map(str, answer.get("messages") or [answer.get("reason") or "no reason given"]))

    def _post(self, path: str, schema: str, schema_type: SchemaType) -> Any:
        # the client's own methods give no reasons for incompatibility, and cache what must not be cached
        return client_of(self.address)._rest_client.post(path, body={"schema": schema, "schemaType": schema_type})

    @contextmanager
    def _translated(
        self,
        refused: type[CdcError],
        unreachable: type[CdcError],
        subject: str,
        schema: str,
        schema_type: SchemaType,
    ) -> Iterator[None]:
        """Turn the client's errors into ours. What they say is the registry's or the network's, never a secret."""
        try:
            yield
        except CdcError:
            raise
        except _registry_error() as error:
            status = error.http_status_code
            if status in _UNAUTHORIZED:
                raise refused(
                    f"the schema registry {self} {_UNAUTHORIZED[status]} (HTTP {status}); give user and password in "
                    "'confluent_schema_registry', percent-encoded, and let that user read and write the subject "
                    f"'{subject}'"
                ) from None
            if status == _INCOMPATIBLE:
                reason = self._reason(subject, schema, schema_type) or error.error_message
                raise refused(self._incompatible(subject, schema, reason)) from None
            if status == _MISSING:
                raise refused(
                    f"there is no schema registry at {self} ({_said(error)}); 'confluent_schema_registry' must have "
                    "the path of its Confluent-compatible API"
                ) from None
            if status in _BUSY or status >= 500:
                raise unreachable(
                    f"the schema registry {self} cannot answer for subject '{subject}' now: {_said(error)}"
                ) from None
            raise refused(
                f"the schema registry {self} refuses the schema of subject '{subject}': {_said(error)}; "
                f"the schema is {schema}"
            ) from None
        except Exception as error:
            # the network's errors, or answers of something that is no registry; the client's HTTP library varies
            raise unreachable(
                f"the schema registry {self} is out of reach, or no registry: {str(error) or type(error).__name__}"
            ) from None

    def _reason(self, subject: str, schema: str, schema_type: SchemaType) -> str | None:
        """Return the registry's verbose reason, or None when it does not give one now."""
        try:
            return self._conflict(subject, schema, schema_type)
        except Exception:
            return None

    def _incompatible(self, subject: str, schema: str, reason: str) -> str:
        return (
            f"the schema registry {self} refuses the new schema of subject '{subject}' as incompatible: {reason}; "
            f"registered is {self._latest(subject)}; new is {schema}; "
            "change the table back, the subject's compatibility, or the topic"
        )

    def _latest(self, subject: str) -> str:
        try:
            latest = client_of(self.address)._rest_client.get(f"subjects/{_quoted(subject)}/versions/latest")
            return f"version {latest['version']}: {latest['schema']}"
        except Exception:
            return "something that it does not show"

    def __str__(self) -> str:
        return str(self.address)


def _registry_error() -> Any:
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    return SchemaRegistryError


def _said(error: Any) -> str:
    return f"{error.error_message} (HTTP {error.http_status_code})"


def _quoted(subject: str) -> str:
    return quote(subject, safe="")
