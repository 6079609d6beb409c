"""Rows above `max_row_bytes`, and with texts that are not UTF-8: refused as an encoder or a sink refuses a row."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.delivery.dead_letters import BadRow
from cdc_core.engine.packing import divided
from cdc_core.options import format_bytes
from cdc_core.rows import RowBatch, fields_by_name
from cdc_core.unavailable import unavailable_by_column, unavailable_column

_KEPT_BYTES = 8192
"""Values of at most this size stay in a row that is too large."""


def deliverable(
    rows: RowBatch, max_row_bytes: int | None, *, unchecked_texts: bool
) -> Iterator[tuple[RowBatch, str | None]]:
    """Yield *rows*, in order: those that can be delivered in parts with None, each other one alone with the reason."""
    bad = _invalid_texts(rows) if unchecked_texts else {}
    start = 0
    for index in (*sorted(bad), len(rows)):
        good = rows.slice(start, index - start) if bad else rows
        if max_row_bytes is not None and good.nbytes > max_row_bytes:
            for part in divided(good, most_bytes=max_row_bytes):
                yield part, _too_large(part, max_row_bytes) if part.nbytes > max_row_bytes else None
        elif index > start or not bad:
            yield good, None
        if index < len(rows):
            yield rows.slice(index, 1), bad[index]
        start = index + 1


def _too_large(row: RowBatch, limit: int) -> str:
    return f"it has {row.nbytes:,} bytes, more than max_row_bytes ({format_bytes(limit)})"


def refusal_for(row: RowBatch, reason: str, *, stage: str) -> dict[str, Any]:
    """Return what the writer is told about *row*, a batch of one row that was refused for *reason* at *stage*."""
    return {"row": base64.b64encode(_without_large_values(row).to_ipc()).decode(), "reason": reason, "stage": stage}


def refused_row(value: dict[str, Any]) -> BadRow:
    """Return the row that `refusal_for` told of. Its large values are unavailable, and the row before is null."""
    return BadRow(row=RowBatch.from_ipc(base64.b64decode(value["row"])), stage=value["stage"], reason=value["reason"])


def _without_large_values(row: RowBatch) -> RowBatch:
    schema, after = row.schema, row.column("after")
    columns = {name: row.column(name) for name in row.batch.schema.names}
    if row.has_before:
        columns["before"] = pa.nulls(1, schema.after_type)
    if after.null_count == 0:
        arrays, lacking = after.flatten(), unavailable_by_column(row)
        for index, field in enumerate(schema.after_type):
            if field.name not in schema.primary_key and arrays[index].nbytes > _KEPT_BYTES:
                arrays[index], lacking[field.name] = pa.nulls(1, field.type), np.ones(1, np.bool_)
        in_order = {field.name: lacking[field.name] for field in schema.after_type if field.name in lacking}
        columns |= {"after": RowBatch.struct(schema.after_type, arrays), "unavailable": unavailable_column(in_order)}
    return RowBatch.of(schema, **columns)


def _invalid_texts(rows: RowBatch) -> dict[int, str]:
    """Return why rows cannot be delivered, by index: a text of the key, the row or the row before is not UTF-8."""
    found: dict[int, str] = {}
    for image in ("key", "after", "before"):
        if image not in rows.batch.schema.names:
            continue
        for name, values in fields_by_name(rows.column(image)).items():
            for index, reason in invalid_texts(values).items():
                remedy = "change the value, or use a database with encoding UTF8"
                found.setdefault(index, f"column {name}: {reason}; {remedy}")
    return found


def invalid_texts(values: pa.Array) -> dict[int, str]:
    """Return why texts are not UTF-8, by index; nothing for *values* of another type."""
    if not pa.types.is_string(values.type):
        return {}
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        reasons = ((index, _reason(value)) for index, value in enumerate(values.cast(pa.binary()).to_pylist()))
        return {index: reason for index, reason in reasons if reason}
    return {}


def _reason(value: bytes | None) -> str:
    try:
        (value or b"").decode()
    except UnicodeDecodeError as error:
        return f"its text is not valid UTF-8 at byte {error.start + 1}"
    return ""
