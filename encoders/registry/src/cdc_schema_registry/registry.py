"""A schema registry for encoders: registers schemas while rows flow, and checks them before a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from cdc_core import CdcError, ConfigError, RetryableError, TerminalError
from cdc_schema_registry.address import RegistryAddress
from cdc_schema_registry.calls import (
    NO_LEVEL,
    NO_SCHEMA,
    NO_SUBJECT,
    NO_VERSION,
    RefusedError,
    get,
    in_subject,
    post,
    translated,
)

__all__ = ["RegisteredSchema", "Registry", "SchemaType"]

SchemaType = Literal["AVRO", "JSON"]
"""The names of schema languages in registries."""
_INCOMPATIBLE, _INVALID = 409, 422

_ids: dict[tuple[RegistryAddress, str, SchemaType, str], int] = {}
"""The ids of schemas that this process has registered. They never change, so entries are never removed."""
_provisional: dict[tuple[RegistryAddress, str, SchemaType, str], int] = {}
"""The ids of schemas that are not registered, for messages that are only shown: counted down from the last one."""
_LAST_ID = 2**31 - 1
_texts: dict[tuple[RegistryAddress, int], str] = {}
"""The schemas that this process has looked up by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """One version of a subject."""

    schema_id: int
    version: int
    schema: str
    schema_type: str


@dataclass(frozen=True, slots=True)
class Registry:
    """The registry at an address. Picklable. Connections and ids are shared by the whole process.

    Two texts are two schemas, so callers write schemas in one canonical form. Messages show no credentials.

    Raises, while rows flow: RetryableError when the registry is unreachable or busy, TerminalError when it refuses.
    """

    address: RegistryAddress
    read_only: bool = False
    """Whether nothing is registered: `register` returns the id that a schema has, otherwise a provisional one."""

    @classmethod
    def of(cls, text: str, *, owner: str, read_only: bool = False) -> Registry:
        """Return the registry at *text*, the value of the option `confluent_schema_registry`. Connects to nothing.

        Raises: OptionError, which names *owner*, such as "encoder 'avro'".
        """
        return cls(RegistryAddress.parse(text, owner=owner), read_only)

    def register(self, subject: str, schema: str, schema_type: SchemaType) -> int:
        """Register *schema* in *subject* and return its id.

        Each process sends one request for each pair; other calls are a look-up in a dict. The error of a refused schema
        contains the reason, the new schema and the registered schema.
        """
        known = (self.address, subject, schema_type, schema)
        if self.read_only:
            return self._present_id(known)
        schema_id = _ids.get(known)
        if schema_id is None:
            try:
                answer = post(self.address, in_subject(subject, "/versions"), _body(schema, schema_type), id=int)
                schema_id = _ids[known] = answer["id"]
            except Exception as error:
                raise self._refused(subject, schema, schema_type, error, checking=False) from None
        return schema_id

    def schema(self, schema_id: int) -> str:
        """Return the text of the schema with an id, for decoders. Each process sends one request for each id.

        Raises: ValueError for an unknown id.
        """
        known = (self.address, schema_id)
        text = _texts.get(known)
        if text is None:
            try:
                found = _or_none(lambda: get(self.address, f"schemas/ids/{schema_id}", schema=str))
            except Exception as error:
                raise translated(self.address, f"schema {schema_id}", error, checking=False) from None
            if found is None:
                raise ValueError(f"schema registry {self} has no schema with id {schema_id}")
            text = _texts[known] = found["schema"]
        return text

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Return the newest version of *subject*, None when there is none. Every call sends a request."""
        try:
            return self._latest(subject)
        except Exception as error:
            raise translated(self.address, f"subject '{subject}'", error, checking=False) from None

    def check(self, subject: str, schema: str, schema_type: SchemaType) -> None:
        """Return when the registry would accept `register` with the same arguments. Changes nothing.

        Write permission is not checked, because that would require a write.

        Raises: ConfigError when the registry is unreachable, rejects the credentials, or would refuse the schema.
        """
        try:
            if self._is_registered(subject, schema, schema_type):
                return
            reason = self._conflict(subject, schema, schema_type)
        except Exception as error:
            raise self._refused(subject, schema, schema_type, error, checking=True) from None
        if reason is not None:
            raise ConfigError(self._incompatible(subject, schema, reason))

    def compatibility(self, subject: str) -> str:
        """Return the compatibility level of *subject*: BACKWARD, NONE and so on.

        Raises: ConfigError when the registry is unreachable or refuses.
        """
        try:
            own = f"config/{quote(subject, safe='')}?defaultToGlobal=true"
            found = _or_none(lambda: get(self.address, own, compatibilityLevel=str))
            level: str = (found or get(self.address, "config", compatibilityLevel=str))["compatibilityLevel"]
            return level
        except Exception as error:
            raise translated(self.address, f"subject '{subject}'", error, checking=True) from None

    def __str__(self) -> str:
        return str(self.address)

    def _present_id(self, known: tuple[RegistryAddress, str, SchemaType, str]) -> int:
        """Return the id that a schema has. One without gets a provisional id, which only this process knows."""
        _, subject, schema_type, schema = known
        if (schema_id := _ids.get(known) or _provisional.get(known)) is not None:
            return schema_id
        try:
            found = _or_none(lambda: post(self.address, in_subject(subject), _body(schema, schema_type), id=int))
        except Exception as error:
            raise self._refused(subject, schema, schema_type, error, checking=False) from None
        if found is not None:
            _ids[known] = found["id"]
            return _ids[known]
        _provisional[known] = _LAST_ID - len(_provisional)
        _texts[self.address, _provisional[known]] = schema
        return _provisional[known]

    def _is_registered(self, subject: str, schema: str, schema_type: SchemaType) -> bool:
        """Return whether *schema* is a version of *subject*. Such a schema is never refused."""
        found = _or_none(lambda: post(self.address, in_subject(subject), _body(schema, schema_type), id=int))
        return found is not None

    def _conflict(self, subject: str, schema: str, schema_type: SchemaType) -> str | None:
        """Return why *schema* cannot be the next version of *subject*; None when it can."""
        path = f"compatibility/{in_subject(subject, '/versions?verbose=true')}"
        answer = _or_none(lambda: post(self.address, path, _body(schema, schema_type)))
        if answer is None or answer.get("is_compatible", True):
            return None
        return "; ".join(map(str, answer.get("messages") or [answer.get("reason") or "no reason was returned"]))

    def _latest(self, subject: str) -> RegisteredSchema | None:
        path = in_subject(subject, "/versions/latest")
        found = _or_none(lambda: get(self.address, path, id=int, version=int, schema=str))
        if found is None:
            return None
        return RegisteredSchema(
            schema_id=found["id"],
            version=found["version"],
            schema=found["schema"],
            schema_type=str(found.get("schemaType") or "AVRO"),
        )

    def _refused(
        self,
        subject: str,
        schema: str,
        schema_type: SchemaType,
        error: Exception,
        *,
        checking: bool,
    ) -> CdcError:
        """Return *error* of a request with *schema*, as `translated` does."""
        refused = ConfigError if checking else TerminalError
        if isinstance(error, RefusedError) and error.status == _INCOMPATIBLE:
            reason: str | None = str(error)
            with suppress(Exception):
                reason = self._conflict(subject, schema, schema_type)
            if reason is None:  # another process registered a version at the same moment
                text = f"schema registry {self} did not register a version of subject '{subject}': {error}"
                return ConfigError(text, repairable=True) if checking else RetryableError(text)
            return refused(self._incompatible(subject, schema, reason))
        if isinstance(error, RefusedError) and error.status == _INVALID:
            return refused(
                f"schema registry {self} rejected the schema of subject '{subject}' as invalid: {error}; the schema is "
                f"{schema}"
            )
        return translated(self.address, f"subject '{subject}'", error, checking=checking)

    def _incompatible(self, subject: str, schema: str, reason: str) -> str:
        registered = "the registered schema is unknown"
        with suppress(Exception):
            latest = self._latest(subject)
            registered = (
                "no schema is registered"
                if latest is None
                else f"the registered schema is version {latest.version}, {latest.schema}"
            )
        return (
            f"schema registry {self} refused the new schema of subject '{subject}' as incompatible: {reason}; "
            f"{registered}; the new schema is {schema}; change the subject's compatibility, or "
            "the topic, or revert the change of the table"
        )


def _body(schema: str, schema_type: SchemaType) -> dict[str, Any]:
    return {"schema": schema, "schemaType": schema_type}


def _or_none(request: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Return the response, None when the registry found nothing."""
    try:
        return request()
    except RefusedError as error:
        if error.code in (NO_SUBJECT, NO_VERSION, NO_SCHEMA, NO_LEVEL):
            return None
        raise
