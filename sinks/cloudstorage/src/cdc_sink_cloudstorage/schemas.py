"""Schema files: what the data files of one version of a table hold, beside them, so that no database is needed.

    _schemas/<topic>-<schema version>-<digest>.json

The digest is that of the content, so a name never holds anything else, whoever writes it and however often.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from cdc_core.encoder import Encoder, EnvelopeOptions
from cdc_core.schema import TableSchema
from cdc_core.stored_history import FileShape
from cdc_sink_cloudstorage.names import escape_topic

__all__ = ["SCHEMAS", "SchemaFile"]

SCHEMAS = "_schemas"
"""Directory under the root. Engines that read whole directories leave out names that begin with an underscore."""


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaFile:
    """One schema file: where it is below the root, and what is in it."""

    path: str
    body: bytes

    @classmethod
    def of(cls, schema: TableSchema, *, topic: str, format_: str, encoder: Encoder) -> SchemaFile:
        """Return the schema file of rows that *encoder*, registered as *format_*, writes for *topic*."""
        content = {
            "topic": topic,
            "schema": schema.to_json(),
            "format": format_,
            "envelope": dataclasses.asdict(encoder.context.envelope),
            "options": _plain_options(encoder.context.options),
        }
        body = json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"
        digest = hashlib.sha256(body).hexdigest()[:16]
        return cls(f"{SCHEMAS}/{escape_topic(topic)}-{schema.version:x}-{digest}.json", body)

    @staticmethod
    def read(body: bytes) -> FileShape:
        """Return what a schema file says. Raises: ValueError, KeyError and TypeError when it is none."""
        content = json.loads(body)
        return FileShape(
            schema=TableSchema.from_json(content["schema"]),
            format=content["format"],
            envelope=EnvelopeOptions(**content["envelope"]),
            options=content["options"],
        )


def _plain_options(options: Any) -> dict[str, Any]:
    """Return the encoder's options that are not at their defaults and hold no secret."""
    if not dataclasses.is_dataclass(options):
        return {}
    return {
        field.name: value
        for field in dataclasses.fields(options)
        if (value := getattr(options, field.name)) != field.default
        and not field.metadata.get("secret")
        and not field.metadata.get("uri")
    }
