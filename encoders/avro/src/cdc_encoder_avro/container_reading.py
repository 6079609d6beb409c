"""Reads Avro object container files block by block, and detects files that are truncated or damaged."""

from __future__ import annotations

import io
import json
import zlib
from typing import Any

import pyarrow as pa

from cdc_encoder_avro.codecs import decompressed
from cdc_encoder_avro.container import MAGIC
from cdc_encoder_avro.record_reading import RecordReader

__all__ = ["read_container"]

_SYNC = {"type": "fixed", "name": "sync", "size": 16}
_HEADER: dict[str, Any] = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(MAGIC)}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": _SYNC},
    ],
}
_BLOCK: dict[str, Any] = {
    "type": "record",
    "name": "block",
    "fields": [{"name": "rows", "type": "long"}, {"name": "data", "type": "bytes"}, {"name": "sync", "type": _SYNC}],
}


def read_container(body: bytes) -> tuple[RecordReader, list[dict[str, Any]]]:
    """Return the reader of the file's schema, and the file's records. Raises: ValueError for a damaged file."""
    stream = io.BytesIO(body)
    if body[: len(MAGIC)] != MAGIC:
        raise ValueError(f"not an Avro object container file: {body[:16]!r}")
    header = RecordReader(json.dumps(_HEADER)).read(stream)
    codec = header["meta"].get("avro.codec", b"null").decode()
    reader, blocks = RecordReader(header["meta"]["avro.schema"].decode()), RecordReader(json.dumps(_BLOCK))
    records = []
    while stream.tell() < len(body):
        block = blocks.read(stream)
        if block["sync"] != header["sync"]:
            raise ValueError(f"the block that ends at byte {stream.tell()} has another sync marker than the file")
        data = io.BytesIO(_decompressed(block["data"], codec))
        records += [reader.read(data) for _ in range(block["rows"])]
        if data.read(1):
            raise ValueError(f"the block that ends at byte {stream.tell()} has data after its last row")
    return reader, records


def _decompressed(data: bytes, codec: str) -> bytes:
    try:
        return decompressed(data, codec)
    except (zlib.error, OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"a block is damaged: {error}") from error
