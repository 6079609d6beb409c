"""An encoder around another one, to change or refuse the rows that the other encodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from cdc_core import Encoder, FileBody, MessageBatch, RowBatch, TableSchema, Timestamp

__all__ = ["WrappedEncoder"]


class WrappedEncoder(Encoder):
    """Encodes what `filtered` returns, as *encoder* does."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder.context)
        self._encoder = encoder
        self.file_extension = encoder.file_extension

    @abstractmethod
    def filtered(self, rows: RowBatch) -> RowBatch:
        """Return the rows to encode in place of *rows*. Raises: EncodeError."""

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        self._encoder.check(tables)

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        return self._encoder.encode(self.filtered(rows), topic=topic)

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        return self._encoder.encode_resolved(topic, timestamp)

    def open_body(self, topic: str) -> FileBody:
        return _WrappedBody(self._encoder.open_body(topic), self)


class _WrappedBody(FileBody):
    def __init__(self, body: FileBody, encoder: WrappedEncoder) -> None:
        self._body = body
        self._encoder = encoder

    def write(self, rows: RowBatch) -> bytes | pa.Buffer:
        written = self._body.write(self._encoder.filtered(rows))
        self.held_bytes = self._body.held_bytes
        return written

    def finish(self) -> bytes | pa.Buffer:
        return self._body.finish()
