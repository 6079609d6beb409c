"""Schema files: what the data files of one version of a table hold. With them readers need no database.

    _schemas/<topic>-<schema version>-<digest>.json

The digest is that of the content, so a name always has the same content, whichever writer wrote it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from cdc_core import Encoder, Envelope, FileShape, TableSchema
from cdc_sink_cloudstorage.names import escape_topic

SCHEMAS = "_schemas"
"""Directory below the root. Engines that read whole directories skip names that begin with an underscore."""


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaFile:
    """One schema file: its path below the root, and its content."""

    path: str
    body: bytes

    @classmethod
    def of(cls, schema: TableSchema, *, topic: str, format_: str, encoder: Encoder) -> SchemaFile:
        """Return the schema file of rows that *encoder*, registered as *format_*, writes for *topic*."""
        content = {
            "topic": topic,
            "schema": schema.to_json(),
            "format": format_,
            "envelope": encoder.context.envelope.to_json(),
            "options": _plain_options(encoder.context.options),
        }
        body = json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"
        digest = hashlib.sha256(body).hexdigest()[:16]
        return cls(f"{SCHEMAS}/{escape_topic(topic)}-{schema.version:x}-{digest}.json", body)

    @staticmethod
    def read(body: bytes) -> FileShape:
        """Return what a schema file says. Raises: ValueError, KeyError or TypeError when *body* is not one."""
        content = json.loads(body)
        return FileShape(
            schema=TableSchema.from_json(content["schema"]),
            format=content["format"],
            envelope=Envelope.from_json(content["envelope"]),
            options=content["options"],
        )


def _plain_options(options: Any) -> dict[str, Any]:
    """Return the encoder's options that differ from their defaults and contain no secret."""
    if not dataclasses.is_dataclass(options):
        return {}
    return {
        field.name: value
        for field in dataclasses.fields(options)
        if (value := getattr(options, field.name)) != field.default
        and not field.metadata.get("secret")
        and not field.metadata.get("uri")
    }
