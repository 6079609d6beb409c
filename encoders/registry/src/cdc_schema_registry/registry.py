"""A schema registry, for encoders: registering schemas while rows flow, and checking them before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from cdc_core.errors import CdcError, ConfigError, RetryableError, TerminalError
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
"""How registries name the languages of schemas."""
_INCOMPATIBLE, _INVALID = 409, 422

_ids: dict[tuple[RegistryAddress, str, SchemaType, str], int] = {}
"""What this process has registered. Ids never change, so nothing is ever dropped; a fork may keep it."""
_texts: dict[tuple[RegistryAddress, int], str] = {}
"""What this process has looked up by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """One version of a subject as the registry has it."""

    schema_id: int
    version: int
    schema: str
    schema_type: str


@dataclass(frozen=True, slots=True)
class Registry:
    """The registry at an address. Picklable, and as cheap as its address: connections and ids belong to the process.

    Schemas are texts; two texts are two schemas, so callers write them in one canonical form. Messages name the
    registry without its credentials.

    Raises, while rows flow: RetryableError when the registry is out of reach or busy, TerminalError when it
    refuses.
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

        Asks the registry once in a process for each pair; every other call is a look-up in a dict. A refusal of the
        schema says why, and names both the new and the registered one.
        """
        known = (self.address, subject, schema_type, schema)
        schema_id = _ids.get(known)
        if schema_id is None:
            try:
                answer = post(self.address, in_subject(subject, "/versions"), _body(schema, schema_type))
                schema_id = _ids[known] = int(answer["id"])
            except Exception as error:
                raise self._refused(subject, schema, schema_type, error, TerminalError, RetryableError) from None
        return schema_id

    def schema(self, schema_id: int) -> str:
        """Return the text of the schema with an id, as decoders need it. Asks the registry once in a process.

        Raises: ValueError when there is none.
        """
        known = (self.address, schema_id)
        text = _texts.get(known)
        if text is None:
            try:
                found = _or_none(lambda: get(self.address, f"schemas/ids/{schema_id}"))
            except Exception as error:
                about = f"schema {schema_id}"
                raise translated(
                    self.address, about, error, refused=TerminalError, unreachable=RetryableError
                ) from None
            if found is None:
                raise ValueError(f"the schema registry {self} has no schema {schema_id}")
            text = _texts[known] = str(found["schema"])
        return text

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Return the newest version of *subject*, or None when there is none. Asks the registry each time."""
        try:
            return self._latest(subject)
        except Exception as error:
            raise translated(
                self.address, f"subject '{subject}'", error, refused=TerminalError, unreachable=RetryableError
            ) from None

    def check(self, subject: str, schema: str, schema_type: SchemaType) -> None:
        """Return when `register` could be called with the same arguments. Changes nothing.

        Whether the user may also write cannot be found out without writing.

        Raises: ConfigError when the registry is out of reach, refuses the credentials, or would refuse the schema.
        """
        try:
            if self._is_registered(subject, schema, schema_type):
                return
            reason = self._conflict(subject, schema, schema_type)
        except Exception as error:
            raise self._refused(subject, schema, schema_type, error, ConfigError, ConfigError) from None
        if reason is not None:
            raise ConfigError(self._incompatible(subject, schema, reason))

    def compatibility(self, subject: str) -> str:
        """Return what the registry demands of a new version of *subject*: BACKWARD, NONE and so on.

        Raises: ConfigError when the registry is out of reach or refuses.
        """
        try:
            found = _or_none(lambda: get(self.address, f"config/{quote(subject, safe='')}?defaultToGlobal=true"))
            found = found or get(self.address, "config")
            return str(found["compatibilityLevel"])
        except Exception as error:
            raise translated(
                self.address, f"subject '{subject}'", error, refused=ConfigError, unreachable=ConfigError
            ) from None

    def __str__(self) -> str:
        return str(self.address)

    def _is_registered(self, subject: str, schema: str, schema_type: SchemaType) -> bool:
        """Return whether *subject* has *schema* in one of its versions; such a schema is never refused."""
        found = _or_none(lambda: post(self.address, in_subject(subject), _body(schema, schema_type)))
        return found is not None

    def _conflict(self, subject: str, schema: str, schema_type: SchemaType) -> str | None:
        """Return what the registry has against *schema* as the next version of *subject*, or None."""
        path = f"compatibility/{in_subject(subject, '/versions?verbose=true')}"
        answer = _or_none(lambda: post(self.address, path, _body(schema, schema_type)))
        if answer is None or answer.get("is_compatible", True):
            return None
        return "; ".join(map(str, answer.get("messages") or [answer.get("reason") or "it gives no reason"]))

    def _latest(self, subject: str) -> RegisteredSchema | None:
        found = _or_none(lambda: get(self.address, in_subject(subject, "/versions/latest")))
        if found is None:
            return None
        return RegisteredSchema(
            schema_id=int(found["id"]),
            version=int(found["version"]),
            schema=str(found["schema"]),
            schema_type=str(found.get("schemaType") or "AVRO"),
        )

    def _refused(
        self,
        subject: str,
        schema: str,
        schema_type: SchemaType,
        error: Exception,
        refused: type[CdcError],
        unreachable: type[CdcError],
    ) -> CdcError:
        """Return *error*, which came of offering *schema*, as one of ours."""
        if isinstance(error, RefusedError) and error.status == _INCOMPATIBLE:
            reason = str(error)
            with suppress(Exception):
                reason = self._conflict(subject, schema, schema_type) or reason
            return refused(self._incompatible(subject, schema, reason))
        if isinstance(error, RefusedError) and error.status == _INVALID:
            return refused(
                f"the schema registry {self} does not accept the schema of subject '{subject}': {error}; the schema is "
                f"{schema}"
            )
        return translated(self.address, f"subject '{subject}'", error, refused=refused, unreachable=unreachable)

    def _incompatible(self, subject: str, schema: str, reason: str) -> str:
        registered = "not shown"
        with suppress(Exception):
            latest = self._latest(subject)
            registered = "gone" if latest is None else f"version {latest.version}, {latest.schema}"
        return (
            f"the schema registry {self} refuses the new schema of subject '{subject}' as incompatible: {reason}; "
            f"registered is {registered}; new is {schema}; "
            "change the table back, the subject's compatibility, or the topic"
        )


def _body(schema: str, schema_type: SchemaType) -> dict[str, Any]:
    return {"schema": schema, "schemaType": schema_type}


def _or_none(request: Callable[[], Any]) -> Any:
    """Return the answer, or None when the registry looked and found nothing."""
    try:
        return request()
    except RefusedError as error:
        if error.code in (NO_SUBJECT, NO_VERSION, NO_SCHEMA, NO_LEVEL):
            return None
        raise
