"""Options of the JSON encoder."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core import option


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOptions:
    """Options of the JSON encoder, besides those that all encoders share."""

    encode_json_value_null_as_object: bool = option(
        False,
        doc='Write a JSON null in a json column as `{"__crdb_json_null__": true}`. A SQL NULL is written as `null`.',
    )
    confluent_schema_registry: str | None = option(
        None,
        doc="URL of a schema registry, for example"
        " `https://key:secret@host:443?timeout=30s&ca_cert=&client_cert=&client_key=`. The encoder registers JSON"
        " Schemas for the keys and values of each topic, and writes messages in the registry's wire format; in the"
        " `cloudevents` envelope, events contain the URL of the schema instead. Requires the `registry` extra.",
        secret=True,
        uri=True,
    )
