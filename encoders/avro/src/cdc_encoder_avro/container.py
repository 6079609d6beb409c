"""Avro object container files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from cdc_column_texts.binary import offsets_of

from cdc_core import ContractError, FileBody, RowBatch, TableSchema, joined_values
from cdc_encoder_avro.codecs import compressed
from cdc_encoder_avro.varints import long_bytes

__all__ = ["BLOCK_BYTES", "MAGIC", "AvroBody"]

BLOCK_BYTES = 64 * 1024
"""A block ends with the row that brings it to this size, before compression."""
MAGIC = b"Obj\x01"


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


def _sync(schema: str, topic: str, first_row: bytes) -> bytes:
    """Return the sync marker between blocks: pseudo-random, and always the same for the same file."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (schema.encode(), topic.encode(), first_row):
        digest.update(long_bytes(len(part)) + part)
    return digest.digest()


def _header(schema: str, codec: str, sync: bytes) -> bytes:
    entries = {"avro.codec": codec.encode(), "avro.schema": schema.encode()}
    parts = [MAGIC, long_bytes(len(entries))]
    for name, value in entries.items():
        parts += [long_bytes(len(name)), name.encode(), long_bytes(len(value)), value]
    return b"".join([*parts, long_bytes(0), sync])


def _block(rows: int, data: bytes, codec: str, sync: bytes) -> bytes:
    body = compressed(data, codec)
    return b"".join([long_bytes(rows), long_bytes(len(body)), body, sync])
