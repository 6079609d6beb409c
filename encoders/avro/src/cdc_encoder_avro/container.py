"""Avro object container files: writes them, reads them, and detects files that are truncated or damaged."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from cdc_column_texts.binary import offsets_of

from cdc_core import ContractError, FileBody, RowBatch, TableSchema, joined_values
from cdc_encoder_avro.record_reading import RecordReader
from cdc_encoder_avro.varints import long_bytes

BLOCK_BYTES = 64 * 1024
"""A block ends with the row that brings it to this size, before compression."""
_MAGIC = b"Obj\x01"
_CRC_BYTES = 4
_SYNC = {"type": "fixed", "name": "sync", "size": 16}
_HEADER: dict[str, Any] = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(_MAGIC)}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": _SYNC},
    ],
}
_BLOCK: dict[str, Any] = {
    "type": "record",
    "name": "block",
    "fields": [{"name": "rows", "type": "long"}, {"name": "data", "type": "bytes"}, {"name": "sync", "type": _SYNC}],
}


class AvroBody(FileBody):
    """One object container file. Its bytes depend only on its rows, not on how these are divided into batches."""

    def __init__(
        self,
        schema_text: Callable[[TableSchema], str],
        encode: Callable[[RowBatch], pa.Array],
        *,
        topic: str,
        codec: str,
    ) -> None:
        """*schema_text* returns the Avro schema of rows, *encode* the rows themselves: large_binary, without nulls."""
        self._schema_text = schema_text
        self._encode = encode
        self._topic = topic
        self._codec = codec
        self._schema: TableSchema | None = None
        self._sync = b""
        self._open: list[pa.Buffer] = []
        self._open_rows = 0
        self._open_bytes = 0

    def write(self, rows: RowBatch) -> bytes:
        """Add *rows* and return the blocks that are full. The first call with rows returns the header too.

        Raises: ContractError when the schema of the rows differs from that of earlier rows.
        """
        if len(rows) == 0:
            return b""
        values = self._encode(rows)
        written = []
        if self._schema is None:
            self._schema = rows.schema
            text = self._schema_text(rows.schema)
            self._sync = _sync(text, self._topic, values[0].as_py())
            written.append(_header(text, self._codec, self._sync))
        elif self._schema is not rows.schema and self._schema != rows.schema:
            raise ContractError(f"a file of table {self._schema.name} got rows of two schema versions")
        data = joined_values(values)
        ends = offsets_of(values)
        row = 0
        while row < len(rows):
            wanted = ends[row] + max(BLOCK_BYTES - self._open_bytes, 1)
            end = min(int(np.searchsorted(ends, wanted)), len(rows))
            part = data.slice(int(ends[row]), int(ends[end] - ends[row]))
            self._open.append(part)
            self._open_rows += end - row
            self._open_bytes += part.size
            row = end
            if self._open_bytes >= BLOCK_BYTES:
                written.append(self._block())
        return b"".join(written)

    def finish(self) -> bytes:
        """Return the last block. A body without rows has no schema and therefore no bytes."""
        return self._block() if self._open_rows else b""

    @classmethod
    def whole(cls, schema: str, row: bytes, *, codec: str) -> bytes:
        """Return a file of one row."""
        sync = _sync(schema, "", row)
        return _header(schema, codec, sync) + _block(1, row, codec, sync)

    def _block(self) -> bytes:
        block = _block(self._open_rows, b"".join(self._open), self._codec, self._sync)
        self._open, self._open_rows, self._open_bytes = [], 0, 0
        return block


def read_container(body: bytes) -> tuple[RecordReader, list[dict[str, Any]]]:
    """Return the reader of the file's schema, and the file's records. Raises: ValueError for a damaged file."""
    stream = io.BytesIO(body)
    if body[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"not an Avro object container file: {body[:16]!r}")
    header = RecordReader(json.dumps(_HEADER)).read(stream)
    codec = header["meta"].get("avro.codec", b"null").decode()
    reader, blocks = RecordReader(header["meta"]["avro.schema"].decode()), RecordReader(json.dumps(_BLOCK))
    records = []
    while stream.tell() < len(body):
        block = blocks.read(stream)
        if block["sync"] != header["sync"]:
            raise ValueError(f"the block that ends at byte {stream.tell()} has a different sync marker than the file")
        data = io.BytesIO(_decompressed(block["data"], codec))
        records += [reader.read(data) for _ in range(block["rows"])]
        if data.read(1):
            raise ValueError(f"the block that ends at byte {stream.tell()} has data after its last row")
    return reader, records


def _sync(schema: str, topic: str, first_row: bytes) -> bytes:
    """Return the sync marker between blocks: pseudo-random, and always the same for the same file."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (schema.encode(), topic.encode(), first_row):
        digest.update(long_bytes(len(part)) + part)
    return digest.digest()


def _header(schema: str, codec: str, sync: bytes) -> bytes:
    entries = {"avro.codec": codec.encode(), "avro.schema": schema.encode()}
    parts = [_MAGIC, long_bytes(len(entries))]
    for name, value in entries.items():
        parts += [long_bytes(len(name)), name.encode(), long_bytes(len(value)), value]
    return b"".join([*parts, long_bytes(0), sync])


def _block(rows: int, data: bytes, codec: str, sync: bytes) -> bytes:
    body = _compressed(data, codec)
    return b"".join([long_bytes(rows), long_bytes(len(body)), body, sync])


def _compressed(data: bytes, codec: str) -> bytes:
    """Return *data*, the content of a block, compressed with *codec*."""
    if codec == "deflate":
        compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        return compressor.compress(data) + compressor.flush()
    if codec == "zstandard":
        return bytes(pa.Codec("zstd").compress(data))
    if codec == "snappy":
        return bytes(pa.Codec("snappy").compress(data)) + _crc(data)
    return data


def _decompressed(data: bytes, codec: str) -> bytes:
    """Return the content of a compressed block. Raises: ValueError for an unknown codec or damaged data."""
    try:
        return _plain(data, codec)
    except (zlib.error, OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"a block is damaged: {error}") from error


def _plain(data: bytes, codec: str) -> bytes:
    if codec == "deflate":
        return zlib.decompress(data, wbits=-zlib.MAX_WBITS)
    if codec == "zstandard":
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return bytes(stream.read())
    if codec == "snappy":
        block = bytes(pa.Codec("snappy").decompress(data[:-_CRC_BYTES], _snappy_size(data)))
        if _crc(block) != data[-_CRC_BYTES:]:
            raise ValueError("the checksum of a block is wrong")
        return block
    if codec != "null":
        raise ValueError(f"unknown codec '{codec}'")
    return data


def _crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CRC_BYTES, "big")


def _snappy_size(data: bytes) -> int:
    """Return the length of the decompressed data: seven bits in each byte, the least significant first."""
    size = 0
    for place, byte in enumerate(data):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return size
