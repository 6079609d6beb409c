"""Options of the JSON encoder."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.options import option

__all__ = ["JsonOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOptions:
    """What a user may set besides the options that every encoder shares."""

    encode_json_value_null_as_object: bool = option(
        False,
        doc='Write a JSON null of a json column as `{"__crdb_json_null__": true}`; an SQL NULL is written as `null`.',
    )
    confluent_schema_registry: str | None = option(
        None,
        doc="Register a JSON Schema of each topic's keys and values, and write messages in the registry's wire format: "
        "`https://key:secret@host:443?timeout=30s&ca_cert=&client_cert=&client_key=`. Needs the extra `registry`.",
        secret=True,
    )
