"""The sizes of the values of a column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_column_texts.numpy_columns import Ints

__all__ = ["byte_sizes", "distinct"]


def byte_sizes(array: pa.Array) -> Ints:
    """Return the number of bytes of each value of a string or binary *array*. That of a null is undefined."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    offset_type = np.dtype("<i8" if wide else "<i4")
    if len(array) == 0:
        return np.empty(0, np.int64)
    offsets = np.frombuffer(array.buffers()[1], offset_type, len(array) + 1, array.offset * offset_type.itemsize)
    return np.diff(offsets).astype(np.int64)


def distinct(values: Ints) -> tuple[Ints, npt.NDArray[np.intp]]:
    """Return the distinct *values* in ascending order, and the index of each value among them."""
    first, last = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if last - first > 16 * len(values):
        found, places = np.unique(values, return_inverse=True)
        return found, places.astype(np.intp, copy=False)
    seen = np.zeros(last - first + 1, np.bool_)
    seen[values - first] = True
    return np.flatnonzero(seen) + first, (np.cumsum(seen) - 1)[values - first]
