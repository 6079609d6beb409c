"""A file that is being filled, in memory."""

from __future__ import annotations

import hashlib

from cdc_core import FileBody, RowBatch, TableSchema, Timestamp, TracedRow
from cdc_sink_cloudstorage.compression import new_compressor
from cdc_sink_cloudstorage.store import Chunk


class OpenFile:
    """Collects the final bytes of one file: the encoder's own buffers, without a copy, or the compressor's output.

    It holds nothing but this list of chunks, which is what an upload needs. Rows are compressed as they arrive.
    """

    def __init__(self, topic: str, schema: TableSchema, *, body: FileBody, compression: str) -> None:
        self.topic = topic
        self.schema = schema
        self.messages = 0
        self.nbytes = 0
        """Bytes collected so far, after compression, without those that the body still holds."""
        self.lower: Timestamp | None = None
        """The least `updated` of the rows, None while there are none."""
        self.upper = Timestamp()
        """The greatest `updated` of the rows."""
        self.traced: list[TracedRow] = []
        """The rows that someone traces."""
        self._hash = hashlib.sha256()
        self._body = body
        self._compressor = new_compressor(compression)
        self._chunks: list[Chunk] = []

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the file takes, including those that the body holds."""
        return self.nbytes + self._body.held_bytes

    @property
    def sha256(self) -> str:
        """Checksum of the bytes collected so far, as hexadecimal digits."""
        return self._hash.hexdigest()

    def accepts(self, rows: RowBatch) -> bool:
        """Return whether *rows* have the table and schema version of this file."""
        return rows.schema.name == self.schema.name and rows.schema.version == self.schema.version

    def write(self, rows: RowBatch) -> int:
        """Add *rows* and return how many more bytes of memory the file takes. After an error nothing was added."""
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
