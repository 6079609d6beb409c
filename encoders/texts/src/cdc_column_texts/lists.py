"""Lists from their concatenated items."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_column_texts.numpy_columns import Ints
from cdc_column_texts.text_columns import with_nulls_of

__all__ = ["list_bounds", "list_texts"]


def list_bounds(counts: Ints) -> npt.NDArray[np.int32]:
    """Return the offsets of lists with *counts* items, as Arrow stores them."""
    bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    return bounds


def list_texts(items: pa.Array, counts: Ints, *, brackets: str, nulls_of: pa.Array) -> pa.Array:
    """Return each list as text, its *items* between *brackets*; null where *nulls_of* is null."""
    lists = pa.ListArray.from_arrays(pa.array(list_bounds(counts)), items)
    first, last, nothing = (pa.scalar(text, pa.string()) for text in (*brackets, ""))
    texts = pc.binary_join_element_wise(first, pc.binary_join(lists, ", "), last, nothing)
    return with_nulls_of(nulls_of, texts)
