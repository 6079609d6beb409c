"""Texts of whole columns, written and read without a loop over the rows. A library for encoders."""

from cdc_column_texts.array_items import JSON_KINDS, items_of, written_items
from cdc_column_texts.datetimes import SPECIAL_NUMBERS, date_pieces, hlc_pieces, time_pieces, timestamp_pieces
from cdc_column_texts.errors import NoRepresentationError, encode_error
from cdc_column_texts.floats import float_pieces
from cdc_column_texts.item_texts import array_text
from cdc_column_texts.json_members import Members, Spans
from cdc_column_texts.json_splitting import split_arrays, structure
from cdc_column_texts.json_strings import quoted, quoted_column
from cdc_column_texts.json_values import JSON_NULL_OBJECT, SPECIAL_DECIMALS, json_pieces
from cdc_column_texts.keyed_rows import by_unavailable, columns_with_keys, key_in_row
from cdc_column_texts.numpy_columns import Bools, Ints, integers, valid_rows
from cdc_column_texts.pieces import NULL, Piece, joined, joined_bytes, or_null, series
from cdc_column_texts.text_columns import (
    hlc_runs,
    hlc_texts,
    list_bounds,
    list_texts,
    plain_texts,
    text_column,
    with_nulls_of,
)
from cdc_column_texts.text_reading import column_of_texts, timestamps_of_texts

__all__ = [
    "JSON_KINDS",
    "JSON_NULL_OBJECT",
    "NULL",
    "SPECIAL_DECIMALS",
    "SPECIAL_NUMBERS",
    "Bools",
    "Ints",
    "Members",
    "NoRepresentationError",
    "Piece",
    "Spans",
    "array_text",
    "by_unavailable",
    "column_of_texts",
    "columns_with_keys",
    "date_pieces",
    "encode_error",
    "float_pieces",
    "hlc_pieces",
    "hlc_runs",
    "hlc_texts",
    "integers",
    "items_of",
    "joined",
    "joined_bytes",
    "json_pieces",
    "key_in_row",
    "list_bounds",
    "list_texts",
    "or_null",
    "plain_texts",
    "quoted",
    "quoted_column",
    "series",
    "split_arrays",
    "structure",
    "text_column",
    "time_pieces",
    "timestamp_pieces",
    "timestamps_of_texts",
    "valid_rows",
    "with_nulls_of",
    "written_items",
]
