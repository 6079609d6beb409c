"""Options of the Avro encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc_core import option


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroOptions:
    """Options of the Avro encoder, besides those that all encoders share."""

    confluent_schema_registry: str | None = option(
        None,
        doc="URL of the schema registry, for example `https://user:password@host:8081?timeout=30s&ca_cert=…`. Required"
        " for messages, but not for files, which contain their schema.",
        secret=True,
        uri=True,
    )
    avro_schema_prefix: str = option("", doc="Prefix of subject names, and namespace of the schemas.")
    avro_enum: Literal["string", "enum"] = option(
        "string", doc="How to write enums: as strings, or as Avro enums, which require readers to know every label."
    )
    avro_arrays: Literal["typed", "json"] = option(
        "typed", doc="How to write arrays: as Avro arrays (one-dimensional only) or as JSON text."
    )
    avro_special_values: Literal["error", "string"] = option(
        "error",
        doc="What to do with values that Avro's types cannot represent: infinite dates and timestamps, the time"
        " 24:00:00, and NaN or infinity in a `numeric(p,s)`. `error` refuses the row; `string` writes strings such as"
        " `infinity`, and adds `string` to the union type of every date, time, timestamp and `numeric(p,s)` column."
        " Some readers, such as Polars, refuse such unions.",
    )
    avro_codec: Literal["null", "deflate", "zstandard", "snappy"] = option(
        "null", doc="Codec that compresses the blocks in files. Do not combine it with the sink's compression."
    )
