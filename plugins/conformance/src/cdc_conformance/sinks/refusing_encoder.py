"""An encoder that cannot encode one particular row."""

from __future__ import annotations

from cdc_conformance.wrapped_encoder import WrappedEncoder
from cdc_core import EncodeError, RowBatch

__all__ = ["REFUSED", "RefusingEncoder"]

REFUSED = 47_110_815
"""The value of `id` in the row that cannot be encoded."""


class RefusingEncoder(WrappedEncoder):
    """Raises EncodeError for that row, and encodes all others as another encoder does."""

    def filtered(self, rows: RowBatch) -> RowBatch:
        if any(REFUSED in key.values() for key in rows.column("key").to_pylist()):
            raise EncodeError(f"table {rows.schema.name}, column note: cannot encode the row with key ({REFUSED})")
        return rows
