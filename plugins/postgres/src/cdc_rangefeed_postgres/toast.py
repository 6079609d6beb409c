"""Unchanged TOAST values, which an update leaves out of the log."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_core import Op, RowBatch
from cdc_rangefeed_postgres.changes import NONE, Changes
from cdc_rangefeed_postgres.fields import Ints, Mask
from cdc_rangefeed_postgres.keys import key_codes
from cdc_rangefeed_postgres.types import TableVersion

__all__ = ["Lookup", "fill_unchanged"]

Lookup = Callable[[int, TableVersion, pa.StructArray, tuple[str, ...]], tuple[npt.NDArray[np.bool_], pa.StructArray]]
"""`(relid, version, keys, columns)`: read the present values of *columns* in the rows with these *keys*, each once.

*keys* has `version.schema.key_type`. Returns, aligned with *keys*, whether each row exists, and a struct of the columns
in `version.schema`'s types (anything where the row does not exist). A column that the table no longer has counts as a
row that does not exist.
"""


def fill_unchanged(changes: Changes, rows: Ints, *, relid: int, lookup: Lookup | None) -> Mask | None:
    """Fill the unchanged values of *rows*; return which rows could not be, None when all could.

    What old tuples had is filled already. Then comes what earlier rows of the same key carried, unless the key was
    deleted in between; then *lookup*, whose value may be newer than the row: the row that brought it follows.
    """
    if not changes.new.unchanged:
        return None
    codes = key_codes(changes.keys)
    for index in list(changes.new.unchanged):
        _fill_from_earlier(changes, index, codes)
    missing = _missing(changes, rows)
    if missing.any() and lookup is not None:
        _fill_from_table(changes, rows[missing], codes, relid=relid, lookup=lookup)
        missing = _missing(changes, rows)
    return missing if missing.any() else None


def _missing(changes: Changes, rows: Ints) -> Mask:
    after = changes.after[rows]
    missing = np.zeros(len(rows), np.bool_)
    for unchanged in changes.new.unchanged.values():
        missing |= (after != NONE) & unchanged[after]
    return missing


def _fill_from_earlier(changes: Changes, index: int, codes: Ints) -> None:
    unchanged = changes.new.unchanged[index]
    order = np.argsort(codes, kind="stable")
    after = changes.after[order]
    carries = (after != NONE) & ~unchanged[after]
    fresh = np.append(True, codes[order][1:] != codes[order][:-1]) | (changes.ops[order] == Op.DELETE)
    latest = np.maximum.accumulate(np.where(carries | fresh, np.arange(len(order)), 0))
    wanted = (after != NONE) & unchanged[after] & carries[latest]
    if wanted.any():
        values = changes.new.column(index).take(pa.array(after[latest[wanted]]))
        changes.new.fill(index, values, into=after[wanted])


def _fill_from_table(changes: Changes, rows: Ints, codes: Ints, *, relid: int, lookup: Lookup) -> None:
    _, firsts, inverse = np.unique(codes[rows], return_index=True, return_inverse=True)
    schema = changes.version.schema
    columns = sorted(changes.new.unchanged)
    keys = RowBatch.struct(schema.key_type, [column.take(pa.array(rows[firsts])) for column in changes.keys])
    found, values = lookup(relid, changes.version, keys, tuple(schema.columns[index].name for index in columns))
    after = changes.after[rows]
    for field, index in enumerate(columns):
        wanted = changes.new.unchanged[index][after] & found[inverse]
        if wanted.any():
            changes.new.fill(index, values.field(field).take(pa.array(inverse[wanted])), into=after[wanted])
