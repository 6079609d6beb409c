"""What a member of a message shows of each row of a batch."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import ContractError
from cdc_core.rows import Op, RowBatch

__all__ = ["shown_column"]

_WITHOUT_BEFORE = pa.array([Op.INSERT, Op.SCAN], pa.uint8())


def shown_column(rows: RowBatch, member: str) -> pa.StructArray | None:
    """Return the column of *member*, see `Envelope.column`. Raises: ContractError."""
    names, updated = rows.batch.schema.names, rows.column("updated")
    if member == "mvcc_timestamp":
        mvcc = rows.column("mvcc") if "mvcc" in names else updated
        return mvcc if mvcc.null_count == 0 else pc.if_else(mvcc.is_valid(), mvcc, updated)
    if member in names:
        return rows.column(member)
    if not pc.all(pc.is_in(rows.column("op"), _WITHOUT_BEFORE), min_count=0).as_py():
        raise ContractError(f"table {rows.schema.name}: the source left out column 'before', which 'diff' requires")
    return None
