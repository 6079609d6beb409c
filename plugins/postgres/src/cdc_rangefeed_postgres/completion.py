"""Completes rows with the present values of columns that the log does not repeat, in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_core import RowBatch, unavailable_by_column, unavailable_column
from cdc_rangefeed_postgres.fields import Ints, Mask
from cdc_rangefeed_postgres.keys import key_codes
from cdc_rangefeed_postgres.types import TableVersion

__all__ = ["Lookup", "completed"]


class Lookup(Protocol):
    """Reads the present values of *columns* in the rows with these distinct *keys*, of `version.schema.key_type`."""

    def sizes(self, version: TableVersion, keys: pa.StructArray, columns: Sequence[str]) -> Ints:
        """Return about how many bytes the values of each row take; 0 for a row that does not exist."""

    def values(
        self, version: TableVersion, keys: pa.StructArray, columns: Sequence[str]
    ) -> tuple[npt.NDArray[np.bool_], pa.StructArray]:
        """Return whether each row exists, and a struct of the columns in the types of `version.schema`.

        No row exists when the table no longer has one of the columns.
        """


def completed(
    rows: RowBatch, version: TableVersion, *, wanted: Mask, lookup: Lookup, target_bytes: int
) -> Iterator[RowBatch]:
    """Yield *rows*, in order, with the unavailable values of those *wanted* looked up. They may be newer than the rows.

    Values of rows that no longer exist remain unavailable. Batches have values of about *target_bytes*, or one larger
    one, and the values of a batch are read after the caller has taken the one before.
    """
    masks = unavailable_by_column(rows)
    lacking = np.flatnonzero(np.logical_or.reduce([np.zeros(len(rows), np.bool_), *masks.values()]) & wanted)
    if not len(lacking):
        yield rows
        return
    columns = list(masks)
    keys, inverse = _distinct(rows, lacking)
    ends = np.cumsum(lookup.sizes(version, keys, columns)[inverse])
    first, start = 0, 0
    while first < len(lacking):
        before = ends[first - 1] if first else 0
        after = max(int(np.searchsorted(ends, before + target_bytes, side="right")), first + 1)
        stop = int(lacking[after]) if after < len(lacking) else len(rows)
        yield _looked_up(rows.slice(start, stop - start), version, lookup, wanted=wanted[start:stop])
        first, start = after, stop


def _distinct(rows: RowBatch, places: Ints) -> tuple[pa.StructArray, Ints]:
    """Return the distinct keys of the rows at *places*, and the index of each row's key among them."""
    keys = rows.column("key").take(pa.array(places))
    _, firsts, inverse = np.unique(key_codes(keys.flatten()), return_index=True, return_inverse=True)
    return keys.take(pa.array(firsts)), inverse


def _looked_up(rows: RowBatch, version: TableVersion, lookup: Lookup, *, wanted: Mask) -> RowBatch:
    masks = unavailable_by_column(rows)
    lacking = np.flatnonzero(np.logical_or.reduce(list(masks.values())) & wanted)
    keys, inverse = _distinct(rows, lacking)
    found, values = lookup.values(version, keys, list(masks))
    place, exists = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
    place[lacking], exists[lacking] = inverse, found[inverse]
    after = rows.column("after")
    arrays = after.flatten()
    for name, mask in masks.items():
        index = rows.schema.after_type.get_field_index(name)
        arrays[index] = _filled(arrays[index], values.field(name), place, mask & exists)
    columns = {name: rows.column(name) for name in rows.batch.schema.names}
    columns["after"] = RowBatch.struct(rows.schema.after_type, arrays, mask=after.is_null())
    columns["unavailable"] = unavailable_column({name: mask & ~exists for name, mask in masks.items()})
    return RowBatch.of(rows.schema, **columns)


def _filled(array: pa.Array, values: pa.Array, place: Ints, wanted: Mask) -> pa.Array:
    """Return *array* with the entry of *values* at *place* in the rows *wanted*."""
    sources = np.where(wanted, len(array) + place, np.arange(len(array)))
    return pa.concat_arrays([array, values]).take(pa.array(sources))
