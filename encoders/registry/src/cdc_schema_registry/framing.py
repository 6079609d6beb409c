"""Confluent's wire format: a zero byte, the id of the schema in four bytes, big-endian, and the payload."""

from __future__ import annotations

import struct
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

_HEADER = struct.Struct(">bI")
HEADER_BYTES = _HEADER.size


def frame(payloads: pa.Array, schema_id: int) -> pa.Array:
    """Return binary or large_binary *payloads*, each after the header of schema *schema_id*. Nulls remain nulls."""
    return cast(pa.Array, pc.binary_replace_slice(payloads, start=0, stop=0, replacement=_header(schema_id)))


def frame_one(payload: bytes, schema_id: int) -> bytes:
    """Return *payload* after the header of schema *schema_id*."""
    return _header(schema_id) + payload


def unframe(message: bytes) -> tuple[int, bytes]:
    """Return the schema id and the payload of *message*. Raises: ValueError for a message without a header."""
    if len(message) < HEADER_BYTES or message[0]:
        raise ValueError(f"not in a schema registry's wire format: {message[:16]!r}")
    _, schema_id = _HEADER.unpack_from(message)
    return schema_id, message[HEADER_BYTES:]


def _header(schema_id: int) -> bytes:
    return _HEADER.pack(0, schema_id)
