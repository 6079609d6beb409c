"""Arrow columns as NumPy arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def valid_rows(array: pa.Array) -> Bools | None:
    """Return the mask of values that are not null; None when there are no nulls."""
    if array.null_count == 0:
        return None
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def integers(array: pa.Array) -> Ints:
    """Return the integers that *array* stores as int64, 0 where it is null."""
    width = array.type.bit_width // 8
    if len(array) == 0:
        return np.empty(0, np.int64)
    values = np.frombuffer(array.buffers()[1], f"<i{width}", len(array), array.offset * width).astype(
        np.int64, copy=False
    )
    valid = valid_rows(array)
    return values if valid is None else np.where(valid, values, 0)
