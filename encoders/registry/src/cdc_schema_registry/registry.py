"""A schema registry for encoders: registers schemas while rows flow, and checks them before a run."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import islice
from typing import Any, Literal
from urllib.parse import quote

from cdc_core import RUN_AGAIN, CdcError, ConfigError, DestinationLostError, RetryableError, TerminalError
from cdc_schema_registry.address import RegistryAddress
from cdc_schema_registry.calls import (
    READ_ONLY,
    RefusedError,
    get,
    in_subject,
    or_none,
    post,
    translated,
)

SchemaType = Literal["AVRO", "JSON"]
"""The names of schema languages in registries."""
_NO_PATH, _INCOMPATIBLE, _INVALID = 404, 409, 422

_VERIFY_S = 10.0
_VERIFY_BEFORE_NEW_S = 1.0
_VERIFY_AFTER_OUTAGE_S = 30.0
_VERIFY_TIMEOUT_S = 3.0
"""Rows wait for a verification, which they do not need."""
_LAG_S = 2.0
"""Time after which every server of a registry knows what one of them registered."""
_VERIFIED_AT_ONCE = 4
_CHECKED_AT_ONCE = 8
_IDENTIFIED = 16
_provisional: dict[tuple[RegistryAddress, str, SchemaType, str], int] = {}
"""The ids of schemas that are not registered, for messages that are only shown: counted down from the last one."""
_LAST_ID = 2**31 - 1
_texts: dict[tuple[RegistryAddress, int], str] = {}
"""The schemas that this process has looked up by id."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """One version of a subject."""

    schema_id: int
    version: int
    schema: str
    schema_type: str


@dataclass(slots=True)
class _Registered:
    """The ids of registered schemas, by subject, type and text: those first that were verified least recently."""

    ids: dict[tuple[str, SchemaType, str], int] = field(default_factory=dict)
    verified_at: float = 0.0
    paused_until: float = 0.0

    def __reduce__(self) -> tuple[type[_Registered], tuple[dict[tuple[str, SchemaType, str], int]]]:
        return _Registered, (self.ids,)  # another process has another clock


@dataclass(frozen=True, slots=True)
class Registry:
    """The registry at an address. Picklable. Connections are shared by the whole process, ids belong to this object.

    Two texts are two schemas, so callers write schemas in one canonical form. Messages show no credentials.

    Raises, while rows flow: RetryableError when the registry is unreachable or busy, TerminalError when it refuses.
    """

    address: RegistryAddress
    read_only: bool = False
    """Whether nothing is registered: `register` returns the id that a schema has, otherwise a provisional one."""
    _registered: _Registered = field(default_factory=_Registered, compare=False, repr=False)

    @classmethod
    def of(cls, text: str, *, owner: str, read_only: bool = False) -> Registry:
        """Return the registry at *text*, the value of the option `confluent_schema_registry`. Connects to nothing.

        Raises: OptionError, which names *owner*, such as "encoder 'avro'".
        """
        return cls(RegistryAddress.parse(text, owner=owner), read_only)

    def register(self, subject: str, schema: str, schema_type: SchemaType, *, aside: str | None = None) -> int:
        """Return the id of *schema* in *subject*, where it is registered now unless it is there.

        If *aside* is given, the newest schema of *subject* stands for one that differs only in the texts of properties
        called *aside*. The registry is asked once for each schema that it has, and at each call for one for which
        another stands; other calls look it up in a dict. A schema that is there needs no right to write. The error of
        a refused schema contains the reason, the new schema and the registered schema.
        """
        if self.read_only:
            return self._present_id(subject, schema_type, schema, aside)
        ids = self._registered.ids
        schema_id = ids.get((subject, schema_type, schema))
        if schema_id is None:
            self.verify(every_s=_VERIFY_BEFORE_NEW_S)
            try:
                text, schema_id = self._present(subject, schema, schema_type, aside) or (
                    schema,
                    self._registered_now(subject, schema, schema_type),
                )
            except Exception as error:
                raise self._refused(subject, schema, schema_type, error, checking=False) from None
            self._registered.verified_at = self._registered.verified_at if ids else time.monotonic()
            ids[subject, schema_type, text] = schema_id
        return schema_id

    def verify(self, *, every_s: float | None = None) -> None:
        """Return when the registry still knows what was registered by the ids that it gave. For every batch and mark.

        It asks once in *every_s* at most, by default ten seconds, and less often after an outage. It asks for a few
        schemas at a time, in turn. A registry that cannot be asked is logged. Raises: DestinationLostError.
        """
        registered, now = self._registered, time.monotonic()
        due = max(registered.verified_at + _VERIFY_S, registered.paused_until)
        if self.read_only or now < (due if every_s is None else registered.verified_at + every_s):
            return
        registered.verified_at = now
        quick = replace(self, address=replace(self.address, timeout_s=min(self.address.timeout_s, _VERIFY_TIMEOUT_S)))
        for known in list(islice(registered.ids, _VERIFIED_AT_ONCE)):
            subject, schema_type, schema = known
            schema_id = registered.ids[known] = registered.ids.pop(known)
            try:
                present = quick._find(subject, schema, schema_type)
                if present is None:
                    time.sleep(_LAG_S)
                    present = quick._find(subject, schema, schema_type)
            except Exception as error:
                reason = translated(self.address, f"subject '{subject}'", error, checking=False)
                log.warning("cannot verify the ids of schemas: %s", reason)
                registered.paused_until = time.monotonic() + _VERIFY_AFTER_OUTAGE_S
                return
            if present != schema_id:
                now_there = "has none" if present is None else f"has it as {present}"
                raise DestinationLostError(
                    f"schema registry {self} gave the schema of subject '{subject}' the id {schema_id} and {now_there}"
                    " now: its schemas were deleted or replaced, and consumers cannot decode messages with the old"
                    f" ids. Restore the schemas, or {RUN_AGAIN} to register the schemas again. To emit all rows again"
                    " with the new ids, first run `cdc rescan FILE NAME --all`"
                )

    def identities(self, subjects: Mapping[str, str], schema_type: SchemaType) -> dict[str, str | None]:
        """Return the ids that schemas, by subject, have now, None for one that has none, for `Encoder.identities`.

        A few schemas stand for all of them: a registry that was emptied has none. Nothing when it cannot be asked.
        """
        found: dict[str, str | None] = {}
        with suppress(Exception):
            for subject, schema in islice(subjects.items(), _IDENTIFIED):
                present = self._find(subject, schema, schema_type)
                name = f"schema {sha256(schema.encode()).hexdigest()[:8]} of subject '{subject}' in registry {self}"
                found[name] = None if present is None else str(present)
        return found

    def schema(self, schema_id: int) -> str:
        """Return the text of the schema with an id, for decoders. Each process sends one request for each id.

        Raises: ValueError for an unknown id.
        """
        known = (self.address, schema_id)
        text = _texts.get(known)
        if text is None:
            try:
                found = or_none(lambda: get(self.address, f"schemas/ids/{schema_id}", schema=str))
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
            if self._find(subject, schema, schema_type) is not None:  # such a schema is never refused
                return
            reason = self._conflict(subject, schema, schema_type)
        except Exception as error:
            raise self._refused(subject, schema, schema_type, error, checking=True) from None
        if reason is not None:
            raise ConfigError(self._incompatible(subject, schema, reason))

    def check_all(self, schemas: Iterable[tuple[str, str]], schema_type: SchemaType) -> None:
        """Return when `check` would for each of *schemas*, subjects and their schemas, a few at the same time."""
        with ThreadPoolExecutor(_CHECKED_AT_ONCE) as pool:
            list(pool.map(lambda pair: self.check(pair[0], pair[1], schema_type), schemas))

    def compatibility(self, subject: str) -> str:
        """Return the compatibility level of *subject*: BACKWARD, NONE and so on.

        Raises: ConfigError when the registry is unreachable or refuses.
        """
        try:
            own = f"config/{quote(subject, safe='')}?defaultToGlobal=true"
            found = or_none(lambda: get(self.address, own, compatibilityLevel=str))
            return str((found or get(self.address, "config", compatibilityLevel=str))["compatibilityLevel"])
        except Exception as error:
            raise translated(self.address, f"subject '{subject}'", error, checking=True) from None

    def url_of(self, schema_id: int) -> str:
        """Return the URL of a schema, at the first host of the registry."""
        first, *_ = self.address.url.split(",http")
        return f"{first}/schemas/ids/{schema_id}"

    def __str__(self) -> str:
        return str(self.address)

    def _present_id(self, subject: str, schema_type: SchemaType, schema: str, aside: str | None) -> int:
        """Return the id that a schema has. One without gets a provisional id, which only this process knows."""
        ids, known = self._registered.ids, (self.address, subject, schema_type, schema)
        if (schema_id := ids.get(known[1:]) or _provisional.get(known)) is not None:
            return schema_id
        try:
            present = self._present(subject, schema, schema_type, aside)
        except Exception as error:
            raise self._refused(subject, schema, schema_type, error, checking=False) from None
        if present is not None:
            ids[known[1:]] = present[1]
            return present[1]
        _provisional[known] = _LAST_ID - len(_provisional)
        _texts[self.address, _provisional[known]] = schema
        return _provisional[known]

    def _present(self, subject: str, schema: str, schema_type: SchemaType, aside: str | None) -> tuple[str, int] | None:
        """Return the text and the id of what stands for *schema* in *subject*, None when nothing does."""
        schema_id = self._find(subject, schema, schema_type)
        if schema_id is not None:
            return schema, schema_id
        latest = None if aside is None else self._latest(subject)
        if latest is None or latest.schema_type != schema_type:
            return None
        same = _without(aside, latest.schema) == _without(aside, schema)
        return (latest.schema, latest.schema_id) if same else None

    def _latest(self, subject: str) -> RegisteredSchema | None:
        path = in_subject(subject, "/versions/latest")
        found = or_none(lambda: get(self.address, path, id=int, version=int, schema=str))
        if found is None:
            return None
        return RegisteredSchema(
            schema_id=found["id"],
            version=found["version"],
            schema=found["schema"],
            schema_type=str(found.get("schemaType") or "AVRO"),
        )

    def _registered_now(self, subject: str, schema: str, schema_type: SchemaType) -> int:
        """Return the id that *schema* gets, or got from a process that registered it at the same moment."""
        try:
            return int(post(self.address, in_subject(subject, "/versions"), _body(schema, schema_type), id=int)["id"])
        except RefusedError as error:
            present = self._find(subject, schema, schema_type) if error.status == _INCOMPATIBLE else None
            if present is None:
                raise
            return present

    def _find(self, subject: str, schema: str, schema_type: SchemaType) -> int | None:
        """Return the id that *schema* has in *subject* now, None when it has none. Raises: what the client raises."""
        found = or_none(lambda: post(self.address, in_subject(subject), _body(schema, schema_type), id=int))
        return None if found is None else int(found["id"])

    def _conflict(self, subject: str, schema: str, schema_type: SchemaType) -> str | None:
        """Return why *schema* cannot be the next version of *subject*; None when it can."""
        path, body = f"compatibility/{in_subject(subject, '/versions')}", _body(schema, schema_type)
        try:
            answer = or_none(lambda: post(self.address, f"{path}?verbose=true", body))
        except RefusedError as error:
            if error.status != _NO_PATH:
                raise
            # Redpanda and Karapace compare with a version that the path names, and transitively with all before it.
            answer = or_none(lambda: post(self.address, f"{path}/latest?verbose=true", body))
        if answer is None or answer.get("is_compatible", True):
            return None
        return "; ".join(map(str, answer.get("messages") or [answer.get("reason") or "no reason was returned"]))

    def _refused(
        self, subject: str, schema: str, schema_type: SchemaType, error: Exception, *, checking: bool
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
        if isinstance(error, RefusedError) and error.status == _INVALID and error.code != READ_ONLY:
            return refused(
                f"schema registry {self} rejected the schema of subject '{subject}' as invalid: {error}; the schema is "
                f"{schema}"
            )
        return translated(self.address, f"subject '{subject}'", error, checking=checking)

    def _incompatible(self, subject: str, schema: str, reason: str) -> str:
        registered = "the registered schema is unknown"
        with suppress(Exception):
            latest = self.latest(subject)
            registered = (
                "no schema is registered"
                if latest is None
                else f"the registered schema is version {latest.version}, {latest.schema}"
            )
        return (
            f"schema registry {self} refused the new schema of subject '{subject}' as incompatible: {reason};"
            f" {registered}; the new schema is {schema}; change the subject's compatibility, or the topic, or undo the"
            " change to the table"
        )


def _without(aside: str | None, schema: str) -> Any:
    """Return what the text *schema* contains, without texts called *aside*: a field of that name stays."""

    def left(members: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in members.items() if name != aside or not isinstance(value, str)}

    return json.loads(schema, object_hook=left)


def _body(schema: str, schema_type: SchemaType) -> dict[str, Any]:
    return {"schema": schema, "schemaType": schema_type}
