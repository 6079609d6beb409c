"""Messages in a schema registry's wire format: the schemas of a topic's keys and values, and their ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from cdc_schema_registry import Registry, frame, frame_one

from cdc_core import ConfigError, Envelope, TableName, TableSchema
from cdc_encoder_json.json_schema import DESCRIPTION, allows_resolved, key_schema, resolved_schema, value_schema


class RegisteredSchemas:
    """The JSON Schemas of one changefeed in a registry, in the subjects `<topic>-key` and `<topic>-value`. Picklable.

    Raises, while rows flow: RetryableError when the registry is unreachable, TerminalError when it refuses a schema.
    """

    def __init__(
        self, registry: Registry, envelope: Envelope, *, keyed: Callable[[TableSchema], TableSchema] | None
    ) -> None:
        """*keyed* returns the schema whose key messages have; None if keys are not in the registry."""
        self._registry = registry
        self._envelope = envelope
        self._keyed = keyed
        self._ids: dict[tuple[str, TableName], tuple[TableSchema, int, int | None]] = {}
        self._resolved_ids: dict[str, int] = {}

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        """Return when the registry would accept the schemas of *tables*, each with its topic. Changes nothing.

        Raises: ConfigError.
        """
        subjects: dict[str, dict[str, TableName]] = defaultdict(dict)
        for schema, topic in tables:
            for subject, text in self._texts(schema, topic).items():
                subjects[subject].setdefault(text, schema.name)
        self._registry.check_all([(subject, text) for subject, texts in subjects.items() for text in texts], "JSON")
        for subject, schemas in subjects.items():
            level = "NONE" if len(schemas) == 1 else self._registry.compatibility(subject)
            if level != "NONE":
                names = ", ".join(str(name) for name in schemas.values())
                raise ConfigError(
                    f"tables {names} share a topic and therefore subject '{subject}' of the schema registry "
                    f"{self._registry}, which accepts only compatible schemas ({level}); give each table its own "
                    "topic, or set the compatibility of the subject to NONE"
                )

    def identities(self, tables: Sequence[tuple[TableSchema, str]]) -> Mapping[str, str | None]:
        """Return the ids that the registry has for the schemas of *tables*, each with its topic."""
        subjects: dict[str, str] = {}
        for schema, topic in tables:
            subjects |= self._texts(schema, topic)
        return self._registry.identities(subjects, "JSON")

    def framed(self, schema: TableSchema, topic: str, *, key: pa.Array, value: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return *key* and *value* in the wire format. Tombstones and values that are always empty are not changed."""
        key_id, value_id = self._ids_of(schema, topic)
        return frame(key, key_id), value if value_id is None else frame(value, value_id)

    def url(self, schema: TableSchema, topic: str) -> str | None:
        """Return the URL of the schema that values of *schema* have, which is registered now if need be."""
        value_id = self._ids_of(schema, topic)[1]
        return None if value_id is None else self._registry.url_of(value_id)

    def framed_resolved(self, topic: str, payload: bytes) -> bytes:
        """Return *payload*, a resolved mark of *topic*, in the wire format.

        Its schema is the newest schema of the topic's rows, which allows resolved marks too.
        """
        self._registry.verify()
        schema_id = self._resolved_ids.get(topic)
        if schema_id is None:
            subject = f"{topic}-value"
            latest = self._registry.latest(subject)
            if latest is not None and allows_resolved(latest.schema, self._envelope):
                text = latest.schema
            else:
                text = resolved_schema(self._envelope)
            schema_id = self._resolved_ids[topic] = self._registry.register(subject, text, "JSON")
        return frame_one(payload, schema_id)

    def _ids_of(self, schema: TableSchema, topic: str) -> tuple[int, int | None]:
        """Return the ids of the schemas of keys and values; 0 for keys that have none."""
        self._registry.verify()
        known = self._ids.get((topic, schema.name))
        if known is None or (known[0] is not schema and known[0] != schema):
            value = value_schema(schema, self._envelope)
            key_id = 0
            if self._keyed is not None:
                key = self._key_schema(schema, self._keyed)
                key_id = self._registry.register(f"{topic}-key", key, "JSON", aside=DESCRIPTION)
            value_id = None if value is None else self._registry.register(f"{topic}-value", value, "JSON")
            known = self._ids[topic, schema.name] = (schema, key_id, value_id)
        return known[1:]

    def _texts(self, schema: TableSchema, topic: str) -> dict[str, str]:
        """Return the schemas of keys and values, by subject."""
        value = value_schema(schema, self._envelope) or resolved_schema(self._envelope)
        keys = {} if self._keyed is None else {f"{topic}-key": self._key_schema(schema, self._keyed)}
        return keys | {f"{topic}-value": value}

    def _key_schema(self, schema: TableSchema, keyed: Callable[[TableSchema], TableSchema]) -> str:
        of_key = keyed(schema)
        return key_schema(of_key, self._envelope, nullable=of_key is not schema)
