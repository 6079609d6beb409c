"""The tables that the suite writes."""

from __future__ import annotations

from collections.abc import Iterable

from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_core import RowBatch, TableSchema, Timestamp

__all__ = ["AT", "ORDERS", "USERS", "WIDER_ORDERS", "versions"]

ORDERS = table("orders", {"id": INT8, "note": TEXT})
WIDER_ORDERS = table("orders", {"id": INT8, "note": TEXT, "added": INT8}, version=2)
"""The same table after a column was added."""
USERS = table("users", {"id": INT8, "note": TEXT})
AT = Timestamp(1_700_000_000_000_000_000)
"""When the first row of a test is written."""


def versions(keys: Iterable[int], *, at: int = 0, schema: TableSchema = ORDERS, note: str = "") -> RowBatch:
    """Return one version of each of *keys*, in order. The first is written *at* nanoseconds after AT."""
    changes = [Change({"id": key, "note": f"{note}{key} at {at}"}) for key in keys]
    return rows(schema, changes, start=Timestamp(AT.wall + at))
