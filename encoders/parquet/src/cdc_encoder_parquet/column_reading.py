"""Reads a column of a file as a column of a `RowBatch`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import column_of_texts, json_pieces, list_texts, text_column

from cdc_core import ColumnType, Kind

__all__ = ["row_values"]


def row_values(array: pa.Array, type_: ColumnType) -> pa.Array:
    """Return *array*, a column of a file, as a column of *type_*. Raises: ValueError when its type does not fit."""
    if pa.types.is_list(array.type) and type_.kind is Kind.ARRAY and type_.element is not None:
        return _array_texts(array, type_.element)
    if pa.types.is_decimal(array.type) and type_.kind is Kind.DECIMAL:
        return _decimal_texts(array)
    if pa.types.is_string(array.type):
        return column_of_texts(array, type_)
    try:
        return array.cast(type_.arrow)
    except pa.ArrowNotImplementedError as error:
        raise ValueError(f"a column of {array.type} cannot be read as {type_.source}") from error


def _array_texts(array: pa.ListArray, element: ColumnType) -> pa.Array:
    """Return the JSON texts of arrays. Items have the form of the JSON encoder."""
    items = row_values(array.flatten(), element)
    counts = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    texts = text_column(json_pieces(items, element), len(items))
    return list_texts(texts, counts, brackets="[]", nulls_of=array)


def _decimal_texts(array: pa.Array) -> pa.Array:
    """Return decimals as plain texts with all digits of their scale."""
    scale = array.type.scale
    unscaled = pa.Array.from_buffers(pa.decimal128(38, 0), len(array), array.buffers(), offset=array.offset)
    whole = unscaled.cast(pa.string())
    if scale == 0:
        return whole
    sign = pc.if_else(pc.starts_with(whole, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(whole, "-"), scale + 1, "0")
    units, fraction = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    empty = pa.scalar("", pa.string())
    return pc.binary_join_element_wise(
        pc.binary_join_element_wise(sign, units, empty), fraction, pa.scalar(".", pa.string())
    )
