"""An encoder that cannot encode one particular row."""

from __future__ import annotations

import pyarrow as pa

from cdc_core import EncodeError, FileBody, MessageBatch, RowBatch
from cdc_core.wrapped_encoder import WrappedBody, WrappedEncoder

__all__ = ["REFUSED", "RefusingEncoder"]

REFUSED = 47_110_815
"""The value of `id` in the row that cannot be encoded."""


class RefusingEncoder(WrappedEncoder):
    """Raises EncodeError for that row, and encodes all others as another encoder does."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        _require_encodable(rows)
        return super().encode(rows, topic=topic)

    def open_body(self, topic: str) -> FileBody:
        return _RefusingBody(super().open_body(topic))


class _RefusingBody(WrappedBody):
    def write(self, rows: RowBatch) -> bytes | pa.Buffer:
        _require_encodable(rows)
        return super().write(rows)


def _require_encodable(rows: RowBatch) -> None:
    if any(REFUSED in key.values() for key in rows.column("key").to_pylist()):
        raise EncodeError(f"table {rows.schema.name}, column note: cannot encode the row with key ({REFUSED})")
