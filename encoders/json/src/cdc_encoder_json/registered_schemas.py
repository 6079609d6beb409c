"""Messages in a schema registry's wire format: the schemas of a topic's keys and values, and their ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import pyarrow as pa
from cdc_schema_registry import Registry, frame, frame_one

from cdc_core import ConfigError, Envelope, TableName, TableSchema
from cdc_encoder_json.json_schema import allows_resolved, key_schema, resolved_schema, value_schema

__all__ = ["RegisteredSchemas"]


class RegisteredSchemas:
    """The JSON Schemas of one changefeed in a registry, in the subjects `<topic>-key` and `<topic>-value`. Picklable.

    Raises, while rows flow: RetryableError when the registry is unreachable, TerminalError when it refuses a schema.
    """

    def __init__(self, registry: Registry, envelope: Envelope, *, keyed: Callable[[TableSchema], TableSchema]) -> None:
        """*keyed* returns the schema whose key messages have."""
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
            value = value_schema(schema, self._envelope) or resolved_schema(self._envelope)
            for subject, text in ((f"{topic}-key", self._key_schema(schema)), (f"{topic}-value", value)):
                self._registry.check(subject, text, "JSON")
                subjects[subject].setdefault(text, schema.name)
        for subject, schemas in subjects.items():
            level = "NONE" if len(schemas) == 1 else self._registry.compatibility(subject)
            if level != "NONE":
                names = ", ".join(str(name) for name in schemas.values())
                raise ConfigError(
                    f"tables {names} share a topic and therefore subject '{subject}' of the schema registry "
                    f"{self._registry}, which accepts only compatible schemas ({level}); give each table its own "
                    "topic, or set the compatibility of the subject to NONE"
                )

    def framed(self, schema: TableSchema, topic: str, *, key: pa.Array, value: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return *key* and *value* in the wire format. Tombstones and values that are always empty are not changed."""
        known = self._ids.get((topic, schema.name))
        if known is None or (known[0] is not schema and known[0] != schema):
            known = self._ids[topic, schema.name] = self._registered(schema, topic)
        _, key_id, value_id = known
        return frame(key, key_id), value if value_id is None else frame(value, value_id)

    def framed_resolved(self, topic: str, payload: bytes) -> bytes:
        """Return *payload*, a resolved mark of *topic*, in the wire format.

        Its schema is the newest schema of the topic's rows, which allows resolved marks too.
        """
        schema_id = self._resolved_ids.get(topic)
        if schema_id is None:
            subject = f"{topic}-value"
            latest = self._registry.latest(subject)
            if latest is not None and allows_resolved(latest.schema, self._envelope):
                schema_id = latest.schema_id
            else:
                schema_id = self._registry.register(subject, resolved_schema(self._envelope), "JSON")
            self._resolved_ids[topic] = schema_id
        return frame_one(payload, schema_id)

    def _key_schema(self, schema: TableSchema) -> str:
        keyed = self._keyed(schema)
        return key_schema(keyed, self._envelope, nullable=keyed is not schema)

    def _registered(self, schema: TableSchema, topic: str) -> tuple[TableSchema, int, int | None]:
        value = value_schema(schema, self._envelope)
        return (
            schema,
            self._registry.register(f"{topic}-key", self._key_schema(schema), "JSON"),
            None if value is None else self._registry.register(f"{topic}-value", value, "JSON"),
        )
