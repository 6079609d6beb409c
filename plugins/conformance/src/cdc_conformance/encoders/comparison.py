"""The rows that a decoder must return, and how what it returned differs."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_conformance.encoders.form import Form
from cdc_conformance.filtering_encoder import FilteringEncoder
from cdc_core import ColumnType, DecodedRow, DeleteForm, Kind, Op, RowBatch, TableSchema, Timestamp, plain_value

_JSON_KINDS = frozenset({Kind.JSON, Kind.ARRAY, Kind.COMPOSITE})


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


def same(type_: ColumnType, wanted: Any, found: Any) -> bool:
    """Return whether a decoded value equals the value of the row.

    Floats must have the same sign, and NaN equals NaN. JSON texts must have the same tokens and numbers; blanks may
    differ.
    """
    if wanted is None or found is None:
        return wanted is found
    if type_.kind is Kind.FLOAT:
        if not isinstance(found, float):
            return False
        if math.isnan(wanted) or math.isnan(found):
            return math.isnan(wanted) and math.isnan(found)
        return wanted == found and math.copysign(1, wanted) == math.copysign(1, found)
    if type_.kind in _JSON_KINDS:
        return isinstance(found, str) and _tokens(found) == _tokens(wanted)
    if isinstance(wanted, bool) != isinstance(found, bool):
        return False
    return isinstance(found, type(wanted)) and bool(wanted == found)


def expected_rows(rows: RowBatch, topic: str, form: Form) -> list[DecodedRow]:
    """Return *rows* as a decoder of *form* must return them."""
    rows = scanned(rows) if form.scans_only else rows
    columns = {name: rows.column(name) for name in rows.batch.schema.names}
    flags = form.envelope
    found = []
    for index in range(len(rows)):
        row = {name: plain_value(column[index]) for name, column in columns.items()}
        updated, mvcc = _timestamp(row["updated"]), _timestamp(row.get("mvcc") or row["updated"])
        key, lacking = tuple(row["key"].values()), tuple(row.get("unavailable") or ())
        op = Op.INSERT if row["op"] == Op.SCAN else Op(row["op"])  # a scanned row is read as an inserted one
        found.append(
            DecodedRow(
                key=key,
                after=_without(row["after"], lacking) if form.has_row else None,
                before=row.get("before") if flags.diff else None,
                updated=updated if flags.updated else None,
                mvcc=mvcc if flags.mvcc_timestamp else None,
                key_in_value=key if flags.key_in_value else None,
                topic_in_value=topic if flags.topic_in_value else None,
                unavailable=lacking if form.has_row else (),
                op=op if flags.enriched else None,
            )
        )
    return found


def differences(schema: TableSchema, form: Form, wanted: Sequence[DecodedRow], found: Sequence[DecodedRow]) -> str:
    """Return the first difference as a sentence; an empty text when there is none."""
    if len(wanted) != len(found):
        return f"{form}: rows written: {len(wanted)}, rows read: {len(found)}"
    for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
        difference = _difference(schema, form, one, other)
        if difference:
            return f"{form}: row {index} of table {schema.name} (key {one.key}): {difference}"
    return ""


def key_difference(schema: TableSchema, wanted: tuple[Any, ...] | None, found: tuple[Any, ...] | None) -> str:
    """Return the difference of two keys as a sentence; an empty text when there is none."""
    types = [schema.column(name).type for name in schema.primary_key]
    if wanted is None or found is None or len(wanted) != len(types) or len(found) != len(types):
        return "" if wanted == found else f"the key is {found!r}, not {wanted!r}"
    if all(same(type_, one, other) for type_, one, other in zip(types, wanted, found, strict=True)):
        return ""
    return f"the key is {found!r}, not {wanted!r}"


def _difference(schema: TableSchema, form: Form, wanted: DecodedRow, found: DecodedRow) -> str:
    after = wanted.after
    if after is None and found.after is not None and form.envelope.delete is DeleteForm.KEY_AND_NULLS:
        after = dict.fromkeys((column.name for column in schema.columns), None)
        after |= dict(zip(schema.primary_key, wanted.key or (), strict=True))
    image = _image(schema, "the row", after, found.after) or _image(schema, "before", wanted.before, found.before)
    difference = image or key_difference(schema, wanted.key, found.key)
    if difference:
        return difference
    if key_difference(schema, wanted.key_in_value, found.key_in_value):
        return f"the key in the value is {found.key_in_value!r}, not {wanted.key_in_value!r}"
    if sorted(wanted.unavailable) != sorted(found.unavailable):
        return f"the unavailable columns are {sorted(found.unavailable)}, not {sorted(wanted.unavailable)}"
    for name in ("updated", "mvcc", "topic_in_value", "op"):
        one, other = getattr(wanted, name), getattr(found, name)
        if one != other and not (name == "op" and one is None):  # a format may say more than the envelope
            return f"{name} is {str(other)!r}, not {str(one)!r}"
    return ""


def _without(row: Mapping[str, Any] | None, columns: Collection[str]) -> Mapping[str, Any] | None:
    return row if row is None else {name: value for name, value in row.items() if name not in columns}


def _image(schema: TableSchema, what: str, wanted: Mapping[str, Any] | None, found: Mapping[str, Any] | None) -> str:
    if wanted is None or found is None:
        return "" if wanted is found else f"{what} is {found!r}, not {wanted!r}"
    if wanted.keys() != found.keys():
        return f"{what} has the columns {sorted(found)}, not {sorted(wanted)}"
    for name, value in wanted.items():
        if not same(schema.column(name).type, value, found[name]):
            return f"in {what}, column {name} ({schema.column(name).type.source}) is {found[name]!r}, not {value!r}"
    return ""


def _tokens(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=_members)
    except ValueError:
        return text


def _members(pairs: list[tuple[str, Any]]) -> Any:
    return {"object": sorted(pairs, key=lambda pair: pair[0])}


def _timestamp(value: Mapping[str, int]) -> Timestamp:
    return Timestamp(value["wall"], value["logical"])
