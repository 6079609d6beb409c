"""Promises about changes of a table's schema."""

from __future__ import annotations

from typing import Any

from cdc_conformance.encoders.comparison import differences, expected_rows
from cdc_conformance.encoders.conditions import DECODER
from cdc_conformance.encoders.rig import EncoderRig
from cdc_conformance.promises import applies_if
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_core import ColumnType, Kind, Op, RowBatch

__all__ = ["Schemas"]

_INT4 = ColumnType(kind=Kind.INT, source="integer", bits=32)
_FIRST: dict[str, ColumnType] = {"id": INT8, "a": _INT4, "gone": TEXT, "old": TEXT}
_CHANGES: dict[str, dict[str, ColumnType]] = {
    "added": {**_FIRST, "new": TEXT},
    "dropped": {"id": INT8, "a": _INT4, "old": TEXT},
    "widened": {**_FIRST, "a": INT8},
    "renamed": {"id": INT8, "a": _INT4, "gone": TEXT, "renamed": TEXT},
    "moved": {"old": TEXT, "gone": TEXT, "id": INT8, "a": _INT4},
}
_VALUES: dict[str, Any] = {"id": 7, "a": 5, "gone": "g", "old": "o", "new": "n", "renamed": "r"}


@applies_if(DECODER)
class Schemas:
    """A batch has one version of its table. Batches of several versions may arrive in any order."""

    def test_rows_are_encoded_with_the_schema_of_their_batch(self, rig: EncoderRig, topic: str) -> None:
        """After a column was added, dropped, widened, renamed or moved, each batch is encoded with its own schema.

        A worker may get rows of the old version after rows of the new one. Look for state that is stored by the name of
        the table and not updated when the schema differs.
        """
        first = _batch(_FIRST, 1)
        for change, columns in _CHANGES.items():
            second = _batch(columns, 2)
            for form in rig.some(rows=True):
                encoder = rig.encoder(form)
                for what, batch in (("before", first), ("after", second), ("before, again", first)):
                    found = rig.read(form, [batch], f"{topic}_{change}", encoder=encoder)
                    wanted = expected_rows(batch, f"{topic}_{change}", form)
                    difference = differences(batch.schema, form, wanted, found)
                    assert not difference, f"a column is {change}; rows of the version {what}: {difference}"


def _batch(columns: dict[str, ColumnType], version: int) -> RowBatch:
    schema = table("orders", columns, version=version)
    values = {name: _VALUES[name] for name in columns}
    return rows(schema, [Change(values), Change(values, op=Op.DELETE), Change({"id": 8})])
