"""Values that a source does not know: the column `unavailable` of a `RowBatch`, for whole batches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import EncodeError
from cdc_core.rows import UNAVAILABLE_TYPE, RowBatch

UNAVAILABLE_MEMBER = "unavailable"
"""The member of a message, beside other metadata, that names the columns which the message lacks."""


def unavailable_by_column(rows: RowBatch) -> dict[str, npt.NDArray[np.bool_]]:
    """Return, in table order, each column that is unavailable in some rows, with these rows."""
    if not rows.has_unavailable:
        return {}
    column = rows.column("unavailable")
    parents, names = pc.list_parent_indices(column).to_numpy(), pc.list_flatten(column).dictionary_encode()
    codes, found = names.indices.to_numpy(), names.dictionary.to_pylist()
    masks = {}
    for name in (known.name for known in rows.schema.columns if known.name in found):
        masks[name] = np.zeros(len(rows), np.bool_)
        masks[name][parents[codes == found.index(name)]] = True
    return masks


def unavailable_column(masks: Mapping[str, npt.NDArray[np.bool_]]) -> pa.ListArray | None:
    """Return the column `unavailable` for the result of `unavailable_by_column`; None if it is empty."""
    if not any(mask.any() for mask in masks.values()):
        return None
    each = np.stack(list(masks.values()), axis=1)
    offsets = np.zeros(len(each) + 1, np.int32)
    np.cumsum(np.count_nonzero(each, axis=1), out=offsets[1:])
    names = pa.array(list(masks), pa.string()).take(pa.array(np.nonzero(each)[1]))
    empty = pa.array(~each.any(axis=1))
    return pa.ListArray.from_arrays(pa.array(offsets), names, type=UNAVAILABLE_TYPE, mask=empty)


def unavailable_sets(rows: RowBatch) -> list[tuple[tuple[str, ...], npt.NDArray[np.int64]]]:
    """Return the rows by the set of their unavailable columns: (columns in table order, indices in rising order).

    Complete rows are first, with `()`. This is for encoders, because all rows of a set have the same members.
    """
    masks = unavailable_by_column(rows)
    if not masks:
        return [((), np.arange(len(rows)))]
    sets, of_row = np.unique(np.stack(list(masks.values()), axis=1), axis=0, return_inverse=True)
    names = np.array(list(masks), object)
    return [(tuple(names[set_]), np.flatnonzero(of_row.ravel() == index)) for index, set_ in enumerate(sets)]


def refuse_unavailable(rows: RowBatch, *, format_: str) -> None:
    """Raise an EncodeError if a row has unavailable columns, for a format without a place for them."""
    for column, mask in unavailable_by_column(rows).items():
        row = int(mask.argmax())
        raise EncodeError(
            f"cannot encode column {column} of table {rows.schema.name} as {format_} (key {rows.shown_key(row)}): its"
            " value is unknown, because the update left it unchanged, and the format cannot express that. Run ALTER"
            f" TABLE {rows.schema.name} REPLICA IDENTITY FULL, set the source's option unchanged_toast = 'lookup', or"
            " choose another format",
            row=row,
        )
