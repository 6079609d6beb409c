"""Which messages are those of rows that someone traces."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa

from cdc_core import TracedRow

__all__ = ["traced_messages"]


def traced_messages(
    traced: Mapping[int, TracedRow], *, count: int, unsendable: Collection[int], deleted: pa.BooleanArray | None
) -> Mapping[int, TracedRow]:
    """Return the rows of *traced*, by their indices among *count* rows, by the place of their messages.

    There is none of a row at a place that is *unsendable*. Behind that of a row which is *deleted*, by places among the
    sendable ones, there is a tombstone.
    """
    if not traced:
        return traced
    kept = np.setdiff1d(np.arange(count), np.fromiter(unsendable, np.int64))
    times = np.ones(len(kept), np.int64)
    if deleted is not None:
        times += np.asarray(deleted.to_numpy(zero_copy_only=False), np.int64)
    places = np.cumsum(times) - times
    return {int(place): traced[row] for place, row in zip(places, kept.tolist(), strict=True) if row in traced}
