"""Rows of a made-up table, from Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cdc_conformance.rows import INT8, TEXT, Change
from cdc_conformance.rows import rows as batch_of

from cdc_core import Column, ColumnType, Op, RowBatch, TableName, TableSchema, Timestamp


@dataclass(frozen=True, kw_only=True)
class Row:
    """One change, in Python values; the key is taken from `after`, or from `before` for a delete."""

    op: Op = Op.INSERT
    after: Mapping[str, Any] | None = None
    before: Mapping[str, Any] | None = None
    key: tuple[Any, ...] | None = None
    updated: Timestamp = Timestamp(1_700_000_000_000_000_000)
    mvcc: Timestamp | None = None
    unavailable: tuple[str, ...] = ()


def make_rows(
    types: Mapping[str, ColumnType],
    rows: Sequence[Row],
    *,
    primary_key: Sequence[str],
    diff: bool = False,
    mvcc: bool = False,
    version: int = 1,
) -> RowBatch:
    """Return a batch of *rows* of a table with columns of these *types*."""
    schema = TableSchema(
        name=TableName("shop", "public", "orders"),
        version=version,
        columns=tuple(Column(name=name, type=type_) for name, type_ in types.items()),
        primary_key=tuple(primary_key),
    )
    changes = [
        Change(
            _key_of(row, primary_key) if row.after is None else row.after,
            op=row.op,
            updated=row.updated,
            before=row.before,
            mvcc=row.mvcc,
            unavailable=row.unavailable,
        )
        for row in rows
    ]
    return batch_of(schema, changes, before=diff, mvcc=mvcc)


def history_of_a_row(updated: Timestamp, mvcc: Timestamp) -> RowBatch:
    """Return insert, update, delete and scan of one row, with the rows before; only the delete is later."""
    first, second = {"a": 1, "b": "x"}, {"a": 1, "b": "y"}
    images = [(Op.INSERT, first, None), (Op.UPDATE, second, first), (Op.DELETE, None, second)]
    images.append((Op.SCAN, {"a": 1, "b": None}, None))
    rows = [Row(op=op, after=after, before=before, updated=updated, mvcc=mvcc) for op, after, before in images]
    rows[2] = replace(rows[2], updated=replace(updated, wall=updated.wall + 1))
    return make_rows({"a": INT8, "b": TEXT}, rows, primary_key=["a"], diff=True, mvcc=True)


def _key_of(row: Row, primary_key: Sequence[str]) -> Mapping[str, Any]:
    if row.key is not None:
        return dict(zip(primary_key, row.key, strict=True))
    image = row.before if row.after is None else row.after
    assert image is not None
    return {name: image[name] for name in primary_key}
