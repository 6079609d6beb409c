"""Rows with texts that are not UTF-8: they are refused as an encoder or a sink refuses a row."""

from __future__ import annotations

import pyarrow as pa

from cdc_core.rows import RowBatch

__all__ = ["invalid_texts"]


def invalid_texts(rows: RowBatch) -> dict[int, str]:
    """Return why rows cannot be delivered, by index: a text of the key, the row or the row before is not UTF-8."""
    found: dict[int, str] = {}
    for image in ("key", "after", "before"):
        if image not in rows.batch.schema.names:
            continue
        structs = rows.column(image)
        for field, values in zip(structs.type, structs.flatten(), strict=True):
            if pa.types.is_string(field.type) and not _all_valid(values):
                for index, value in enumerate(values.cast(pa.binary()).to_pylist()):
                    if value is not None and (reason := _reason(value)):
                        found.setdefault(index, f"column {field.name}: {reason}")
    return found


def _all_valid(values: pa.StringArray) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _reason(value: bytes) -> str | None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return (
            f"its text is not UTF-8 at byte {error.start + 1}; change the value, or use a database with encoding UTF8"
        )
    return None
