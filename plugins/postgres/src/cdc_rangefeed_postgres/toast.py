"""Unchanged TOAST values. An update that does not change such a value leaves it out of the log."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cdc_core import START_OVER, Op, TerminalRangefeedError, unavailable_column
from cdc_rangefeed_postgres.changes import NONE, Changes
from cdc_rangefeed_postgres.fields import Ints
from cdc_rangefeed_postgres.keys import key_codes
from cdc_rangefeed_postgres.names import quoted_table

__all__ = ["fill_from_earlier", "require_keys", "unavailable_of"]


def require_keys(changes: Changes) -> None:
    """Raise TerminalRangefeedError when the log has not the whole key of a row, as servers before 14.2 may write it."""
    schema = changes.version.schema
    for index in changes.new.unchanged:
        name = schema.columns[index].name
        if name in schema.primary_key:
            raise TerminalRangefeedError(
                f"table {schema.name}: the log does not have a large value of the key column {name}. Upgrade the server"
                f" to its newest minor version, or run ALTER TABLE "
                f"{quoted_table(schema.name.schema, schema.name.table)} REPLICA IDENTITY FULL. {START_OVER}"
            )


def fill_from_earlier(changes: Changes) -> None:
    """Fill unchanged values from earlier rows of the same key, if the key was not deleted in between.

    Values of old tuples are filled already.
    """
    if changes.new.unchanged:
        codes = key_codes(changes.keys)
        for index in list(changes.new.unchanged):
            _fill(changes, index, codes)


def unavailable_of(changes: Changes, rows: Ints) -> pa.ListArray | None:
    """Return the column `unavailable` of *rows*: the unchanged values that are not filled; None when there are none."""
    if not changes.new.unchanged:
        return None
    schema, after = changes.version.schema, changes.after[rows]
    names = [column.name for column in schema.columns]
    masks = {
        names[index]: (after != NONE) & changes.new.unchanged[index][after] for index in sorted(changes.new.unchanged)
    }
    return unavailable_column(masks)


def _fill(changes: Changes, index: int, codes: Ints) -> None:
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
