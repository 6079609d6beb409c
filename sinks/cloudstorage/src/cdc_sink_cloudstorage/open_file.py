"""A file that is being filled, in memory."""

from __future__ import annotations

import hashlib

from cdc_core.encoder import FileBody
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.timestamp import Timestamp
from cdc_sink_cloudstorage.compression import new_compressor
from cdc_sink_cloudstorage.store import Chunk

__all__ = ["OpenFile"]


class OpenFile:
    """Collects the final bytes of one file: the encoder's own buffers, uncopied, or what the compressor returns.

    The list is what a publisher needs and all that this holds: bodies are compressed as they come.
    """

    def __init__(self, topic: str, schema: TableSchema, *, body: FileBody, compression: str) -> None:
        self.topic = topic
        self.schema = schema
        self.messages = 0
        self.nbytes = 0
        """Bytes collected, after compression; those that the body still holds are not among them."""
        self.lower: Timestamp | None = None
        """The least `updated` of the rows, None while there are none."""
        self.upper = Timestamp()
        """The greatest `updated` of the rows."""
        self._hash = hashlib.sha256()
        self._body = body
        self._compressor = new_compressor(compression)
        self._chunks: list[Chunk] = []

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the file takes, those that the body holds back included."""
        return self.nbytes + self._body.held_bytes

    @property
    def sha256(self) -> str:
        """Checksum of the bytes collected, as hexadecimal digits."""
        return self._hash.hexdigest()

    def takes(self, rows: RowBatch) -> bool:
        """Whether *rows* may go into this file: they are of its table and of its schema version."""
        return rows.schema.name == self.schema.name and rows.schema.version == self.schema.version

    def write(self, rows: RowBatch) -> int:
        """Add *rows* and return by how many bytes of memory the file has grown. When it raises, nothing was added."""
        before = self.held_bytes
        data = self._body.write(rows)
        self.messages += len(rows)
        if len(rows):
            earliest = rows.earliest()
            self.lower = earliest if self.lower is None else min(self.lower, earliest)
            self.upper = max(self.upper, rows.latest())
        self._append(data if self._compressor is None else self._compressor.compress(data))
        return self.held_bytes - before

    def finish(self) -> list[Chunk]:
        """Return the whole body, in pieces. Called once, after the last `write`."""
        rest = self._body.finish()
        if self._compressor is None:
            self._append(rest)
        else:
            self._append(self._compressor.compress(rest))
            self._append(self._compressor.flush())
        chunks, self._chunks = self._chunks, []
        return chunks

    def _append(self, data: Chunk) -> None:
        if len(data):
            self._chunks.append(data)
            self._hash.update(data)
            self.nbytes += len(data)
