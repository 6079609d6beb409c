"""Texts of whole columns, written and read without a loop over the rows, for encoders.

`moments` and `floats` write, `reading` reads, `splitting` cuts JSON and `items` makes columns of the items of arrays.
"""

from cdc_column_texts.floats import float_pieces
from cdc_column_texts.items import JSON_KINDS, items_of
from cdc_column_texts.moments import date_pieces, hlc_pieces, time_pieces, timestamp_pieces
from cdc_column_texts.pieces import NULL, Piece, joined, or_null, series
from cdc_column_texts.splitting import split_arrays
from cdc_column_texts.values import Bools, Ints, integers, valid_rows

__all__ = [
    "JSON_KINDS",
    "NULL",
    "Bools",
    "Ints",
    "Piece",
    "date_pieces",
    "float_pieces",
    "hlc_pieces",
    "integers",
    "items_of",
    "joined",
    "or_null",
    "series",
    "split_arrays",
    "time_pieces",
    "timestamp_pieces",
    "valid_rows",
]
