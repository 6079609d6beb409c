"""Unchanged TOAST values. An update that does not change such a value leaves it out of the log."""

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

Lookup = Callable[[TableVersion, pa.StructArray, tuple[str, ...]], tuple[npt.NDArray[np.bool_], pa.StructArray]]
"""`(version, keys, columns)`: reads the present values of *columns* in the rows with these distinct *keys*.

*keys* has `version.schema.key_type`. The result is aligned with *keys*: whether each row exists, and a struct of the
columns in the types of `version.schema`. A row does not exist when the table no longer has the column.
"""


def fill_unchanged(changes: Changes, rows: Ints, *, lookup: Lookup | None) -> Mask | None:
    """Fill the unchanged values of *rows*. Return which rows remain without theirs, or None when there are none.

    Values of old tuples are filled already. This function takes values from earlier rows of the same key, if the key
    was not deleted in between, and then from *lookup*. A value from *lookup* may be newer than the row. The row that
    brought it follows.
    """
    if not changes.new.unchanged:
        return None
    codes = key_codes(changes.keys)
    for index in list(changes.new.unchanged):
        _fill_from_earlier(changes, index, codes)
    missing = _missing(changes, rows)
    if missing.any() and lookup is not None:
        _fill_from_table(changes, rows[missing], codes, lookup=lookup)
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


def _fill_from_table(changes: Changes, rows: Ints, codes: Ints, *, lookup: Lookup) -> None:
    _, firsts, inverse = np.unique(codes[rows], return_index=True, return_inverse=True)
    schema = changes.version.schema
    columns = sorted(changes.new.unchanged)
    keys = RowBatch.struct(schema.key_type, [column.take(pa.array(rows[firsts])) for column in changes.keys])
    found, values = lookup(changes.version, keys, tuple(schema.columns[index].name for index in columns))
    after = changes.after[rows]
    for field, index in enumerate(columns):
        wanted = changes.new.unchanged[index][after] & found[inverse]
        if wanted.any():
            changes.new.fill(index, values.field(field).take(pa.array(inverse[wanted])), into=after[wanted])
