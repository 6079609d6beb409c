"""Options of the Avro encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc_core.options import option

__all__ = ["AvroOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroOptions:
    """What a user may set besides the options that every encoder shares."""

    confluent_schema_registry: str | None = option(
        None,
        doc="URL of the schema registry, `https://user:password@host:8081?timeout=30s&ca_cert=…`. Messages need it;"
        " files carry their schema themselves.",
        secret=True,
    )
    avro_schema_prefix: str = option(
        "", doc="Text put before the topic in the names of subjects; also the namespace of the schemas."
    )
    avro_enum: Literal["string", "enum"] = option(
        "string", doc="How enums are written: as strings, or as Avro enums, which readers must know every label of."
    )
    avro_arrays: Literal["typed", "json"] = option(
        "typed",
        doc="How arrays are written: as Avro arrays, for which they must have one dimension, or as their JSON text.",
    )
    avro_special_values: Literal["error", "string"] = option(
        "error",
        doc="What becomes of values that Avro's types lack, infinite dates and timestamps and the time 24:00:00: an"
        " error, or strings such as `infinity`, for which a string joins the union of every such column.",
    )
    avro_codec: Literal["null", "deflate", "zstandard", "snappy"] = option(
        "null", doc="How the blocks of files are compressed. Leave the sink's own compression off beside it."
    )
