"""An encoder around another one, which changes or refuses the rows that the other encodes."""

from __future__ import annotations

from abc import abstractmethod

import pyarrow as pa

from cdc_core import FileBody, MessageBatch, RowBatch
from cdc_core.wrapped_encoder import WrappedBody, WrappedEncoder


class FilteringEncoder(WrappedEncoder):
    """Encodes what `filtered` returns, as the other encoder does."""

    @abstractmethod
    def filtered(self, rows: RowBatch) -> RowBatch:
        """Return the rows to encode in place of *rows*. Raises: EncodeError."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        return super().encode(self.filtered(rows), topic=topic)

    def open_body(self, topic: str) -> FileBody:
        return _Body(super().open_body(topic), self)


class _Body(WrappedBody):
    def __init__(self, body: FileBody, encoder: FilteringEncoder) -> None:
        super().__init__(body)
        self._filtered = encoder.filtered

    def write(self, rows: RowBatch) -> bytes | pa.Buffer:
        return super().write(self._filtered(rows))
