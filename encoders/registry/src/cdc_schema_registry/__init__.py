"""Schema registries for encoders: the option `confluent_schema_registry`, registration of schemas, wire format.

Importing this module loads no HTTP client. The first request of a `Registry` does.
"""

from cdc_schema_registry.address import RegistryAddress
from cdc_schema_registry.framing import HEADER_BYTES, frame, frame_one, unframe
from cdc_schema_registry.registry import RegisteredSchema, Registry, SchemaType

__all__ = [
    "HEADER_BYTES",
    "RegisteredSchema",
    "Registry",
    "RegistryAddress",
    "SchemaType",
    "frame",
    "frame_one",
    "unframe",
]
