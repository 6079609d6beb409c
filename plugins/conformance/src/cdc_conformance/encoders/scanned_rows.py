"""Restricts an encoder to scanned rows, for formats that are for scans only."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cdc_conformance.filtering_encoder import FilteringEncoder
from cdc_core import Op, RowBatch

__all__ = ["ScannedRowsEncoder", "scanned"]


def scanned(batch: RowBatch) -> RowBatch:
    """Return the rows of *batch* that are not deleted, as scanned rows."""
    kept = batch.batch.filter(pc.not_equal(batch.column("op"), pa.scalar(Op.DELETE, pa.uint8())))
    place = kept.schema.get_field_index("op")
    ops = pa.array([Op.SCAN] * kept.num_rows, pa.uint8())
    return RowBatch(schema=batch.schema, batch=kept.set_column(place, "op", ops))


class ScannedRowsEncoder(FilteringEncoder):
    """Passes only scanned rows to another encoder."""

    def filtered(self, rows: RowBatch) -> RowBatch:
        return scanned(rows)
