"""Schema registries for encoders: the option `confluent_schema_registry`, registering schemas, framing messages.

Importing this loads no HTTP client; that happens when a `Registry` is first asked something.
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
