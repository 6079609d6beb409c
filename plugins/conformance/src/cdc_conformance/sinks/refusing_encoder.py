"""An encoder that has one row which it cannot write."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from cdc_core import EncodeError, Encoder, MessageBatch, RowBatch, TableSchema, Timestamp
from cdc_core.encoder import FileBody

__all__ = ["REFUSED", "Refusing"]

REFUSED = 47_110_815
"""The value of `id` in the row that cannot be written."""


class Refusing(Encoder):
    """Writes what another encoder writes, and refuses that row."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder.context)
        self._encoder = encoder
        self.file_extension = getattr(encoder, "file_extension", "")
        self.compresses = encoder.compresses  # type: ignore[misc] # of this one instance

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        self._encoder.check(tables)

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        _refuse(rows)
        return self._encoder.encode(rows, topic=topic)

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        return self._encoder.encode_resolved(topic, timestamp)

    def open_body(self, topic: str) -> FileBody:
        return _Body(self._encoder.open_body(topic))


class _Body(FileBody):
    def __init__(self, body: FileBody) -> None:
        self._body = body

    def write(self, rows: RowBatch) -> bytes | pa.Buffer:
        _refuse(rows)
        return self._body.write(rows)

    def finish(self) -> bytes | pa.Buffer:
        return self._body.finish()


def _refuse(rows: RowBatch) -> None:
    """Raise EncodeError when the row is there."""
    if any(REFUSED in key.values() for key in rows.column("key").to_pylist()):
        raise EncodeError(
            f"column note of table {rows.schema.name} cannot be written in the row with key ({REFUSED}); mend the row"
        )
