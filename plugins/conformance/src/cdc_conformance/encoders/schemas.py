"""Promises about changes of a table's shape."""

from __future__ import annotations

from typing import Any

from cdc_conformance.encoders.comparing import differences, rows_of
from cdc_conformance.encoders.rig import EncoderRig
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


class Schemas:
    """A batch has one version of its table; batches of several versions come in any order, also old ones again."""

    def test_a_new_version_of_a_table_begins_with_its_first_row(self, rig: EncoderRig, topic: str) -> None:
        """Rows are written as their own batch's schema says, after a column was added, dropped, widened or renamed.

        A worker may get rows of the old version after those of the new one. When this fails, look for what is kept by
        the name of the table, and not looked at again when its schema is another.
        """
        first = _batch(_FIRST, 1)
        for change, columns in _CHANGES.items():
            second = _batch(columns, 2)
            for form in rig.some(rows=True):
                encoder = rig.encoder(form)
                decoder = rig.decoder(form)
                for what, batch in (("before", first), ("after", second), ("before, again", first)):
                    if form.output == "files":
                        body = encoder.open_body(f"{topic}_{change}")
                        written = bytes(body.write(batch)) + bytes(body.finish())
                        found = list(decoder.file(batch.schema, written))
                    else:
                        messages = encoder.encode(batch, topic=f"{topic}_{change}")
                        pairs = zip(messages.key.to_pylist(), messages.value.to_pylist(), strict=True)
                        found = [decoder.message(batch.schema, key, value) for key, value in pairs]
                    said = differences(batch.schema, form, rows_of(batch, f"{topic}_{change}", form), found)
                    assert not said, f"a column is {change}; rows of the table as it was {what}: {said}"


def _batch(columns: dict[str, ColumnType], version: int) -> RowBatch:
    schema = table("orders", columns, version=version)
    values = {name: _VALUES[name] for name in columns}
    return rows(schema, [Change(values), Change(values, op=Op.DELETE), Change({"id": 8})])
