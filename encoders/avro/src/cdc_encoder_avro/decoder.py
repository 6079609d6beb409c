"""Reads what the Avro encoder writes, for tests and audits."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
from cdc_schema_registry import unframe

from cdc_core import Timestamp
from cdc_encoder_avro.codecs import decompressed
from cdc_encoder_avro.container import MAGIC

__all__ = ["AvroDecoder", "decode_file"]

_SYNC = {"type": "fixed", "name": "sync", "size": 16}
_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(MAGIC)}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": _SYNC},
        ],
    }
)
_BLOCK = fastavro.parse_schema(
    {
        "type": "record",
        "name": "block",
        "fields": [
            {"name": "rows", "type": "long"},
            {"name": "data", "type": "bytes"},
            {"name": "sync", "type": _SYNC},
        ],
    }
)


class AvroDecoder:
    """Reads messages. *schema_of* returns the text of the schema with an id: a registry's, or a dict's `__getitem__`.

    Values are Python's own for Avro's logical types: datetimes, dates, times, Decimals, UUIDs. Where Python has none,
    as for years after 9999, reading fails with OverflowError.
    """

    def __init__(self, schema_of: Callable[[int], str]) -> None:
        self._schema_of = schema_of
        self._schemas: dict[int, Any] = {}

    def decode_value(self, payload: bytes) -> dict[str, Any]:
        """Return the envelope in a message's value. Raises: ValueError when it is not in the wire format."""
        return self._decode(payload)

    def decode_key(self, payload: bytes) -> list[Any]:
        """Return the primary key's values, in key order. Raises: ValueError when it is not in the wire format."""
        return list(self._decode(payload).values())

    def decode_resolved(self, payload: bytes) -> Timestamp | None:
        """Return the timestamp of a resolved payload, or None when *payload* is a row's value."""
        resolved = self._decode(payload).get("resolved")
        return None if resolved is None else Timestamp.parse(resolved)

    def _decode(self, payload: bytes) -> dict[str, Any]:
        schema_id, data = unframe(payload)
        schema = self._schemas.get(schema_id)
        if schema is None:
            schema = self._schemas[schema_id] = fastavro.parse_schema(json.loads(self._schema_of(schema_id)))
        stream = io.BytesIO(data)
        record = _read(stream, schema)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes follow the record of schema {schema_id}")
        return record


def decode_file(body: bytes) -> list[dict[str, Any]]:
    """Return the envelopes in an object container file. Raises: ValueError or EOFError when it is damaged."""
    stream = io.BytesIO(body)
    header = _read(stream, _HEADER)
    if header["magic"] != MAGIC:
        raise ValueError(f"no Avro object container file: {body[:16]!r}")
    schema = fastavro.parse_schema(json.loads(header["meta"]["avro.schema"]))
    codec = header["meta"].get("avro.codec", b"null").decode()
    records = []
    while stream.tell() < len(body):
        block = _read(stream, _BLOCK)
        if block["sync"] != header["sync"]:
            raise ValueError(f"the block that ends at byte {stream.tell()} does not end with the file's mark")
        data = io.BytesIO(decompressed(block["data"], codec))
        records += [_read(data, schema) for _ in range(block["rows"])]
        if data.read(1):
            raise ValueError(f"the block that ends at byte {stream.tell()} has more than its rows")
    return records


def _read(stream: io.BytesIO, schema: Any) -> dict[str, Any]:
    record = fastavro.schemaless_reader(stream, schema, None)
    assert isinstance(record, dict)
    return record
