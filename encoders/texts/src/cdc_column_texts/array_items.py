"""The items of JSON arrays, of a whole column at once, as an Arrow column of the items' own type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_column_texts.errors import NoRepresentationError
from cdc_column_texts.json_splitting import split_arrays
from cdc_column_texts.numpy_columns import Ints, integers, valid_rows
from cdc_column_texts.text_reading import column_of_texts
from cdc_core import ColumnType, Kind

T = TypeVar("T")


JSON_KINDS = frozenset({Kind.JSON, Kind.COMPOSITE})
"""Items of these kinds are JSON texts, and may be arrays."""
_STRINGS = frozenset({Kind.STRING, Kind.ENUM, Kind.UUID, Kind.TIMETZ, Kind.INTERVAL, Kind.BYTES})
_NESTED = r"^\s*\[\s*\["


def written_items(
    array: pa.Array, element: ColumnType, write: Callable[[pa.Array, ColumnType], T], *, option: str
) -> tuple[T, Ints]:
    """Return what *write* returns for the items of all rows of *array*, and the number of items of each row.

    *option* is the option of the encoder that says how arrays are written. Raises: NoRepresentationError for an array
    of several dimensions, and for items that *write* refuses.
    """
    if element.kind not in JSON_KINDS:
        nested = pc.index(pc.match_substring_regex(array, _NESTED), value=True).as_py()
        if nested >= 0:
            raise NoRepresentationError(
                nested, f"the array has several dimensions; set {option} = 'json' to write arrays as JSON text"
            )
    items, counts = items_of(array, element)
    try:
        return write(items, element), counts
    except NoRepresentationError as error:
        row = int(np.searchsorted(np.cumsum(counts), error.row, side="right"))
        raise NoRepresentationError(row, str(error)) from error


def items_of(array: pa.Array, element: ColumnType) -> tuple[pa.Array, Ints]:
    """Return the items of all rows of *array*, and the number of items of each row, 0 where it is null.

    The texts must be arrays of one dimension.
    """
    if element.kind in _STRINGS:
        texts = cast(pl.Series, pl.from_arrow(array))
        lists = texts.str.json_decode(pl.List(pl.String)).to_arrow(compat_level=pl.CompatLevel.oldest())
        items = lists.flatten()
        return column_of_texts(items, element), integers(pc.list_value_length(lists))
    texts, present = split_arrays(array.drop_null())
    texts = pc.if_else(pc.equal(texts, "null"), pa.scalar(None, texts.type), texts)
    counts = present
    valid = valid_rows(array)
    if valid is not None:
        counts = np.zeros(len(array), np.int64)
        counts[valid] = present
    return (texts if element.kind in JSON_KINDS else column_of_texts(pc.utf8_trim(texts, '"'), element)), counts
