"""Columns as Avro unions, by the kind of their type.

The bytes are those of the value in a union of null and `types.branches`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import Ints, NoRepresentationError, integers, valid_rows
from cdc_column_texts.binary import Piece, binary, looked_up, ragged

from cdc_core import ColumnType, Kind
from cdc_encoder_avro.arrays import array_pieces
from cdc_encoder_avro.decimals import decimal_pieces
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.strings import string_bytes, string_pieces
from cdc_encoder_avro.types import decimal_digits, is_enum, is_typed_array
from cdc_encoder_avro.varints import longs

__all__ = ["SPECIAL", "value_pieces"]

_NULL, _VALUE, _STRING = 0, 1, 2
"""Indices in a union: null, the type of the column, string."""
_BOOLS = pa.array([b"\x00", b"\x02\x00", b"\x02\x01"], pa.large_binary())
_DOUBLE = np.dtype([("branch", "u1"), ("value", "<f8")])
_DAY_US = 86_400_000_000
_INFINITY = {np.iinfo(np.int64).max: "infinity", np.iinfo(np.int64).min: "-infinity"}
SPECIAL: dict[Kind, dict[int, str]] = {
    Kind.DATE: {np.iinfo(np.int32).max: "infinity", np.iinfo(np.int32).min: "-infinity"},
    Kind.TIME: {_DAY_US: "24:00:00"},
    Kind.TIMESTAMP: _INFINITY,
    Kind.TIMESTAMPTZ: _INFINITY,
}
"""By kind, the numbers that Avro's types cannot represent, and their texts."""


def value_pieces(array: pa.Array, type_: ColumnType, options: AvroOptions) -> list[Piece]:
    """Return the unions of a column. Raises: NoRepresentationError."""
    kind = type_.kind
    if kind in SPECIAL:
        return [_datetimes(array, SPECIAL[kind], options)]
    digits = decimal_digits(type_)
    if digits is not None:
        return [decimal_pieces(array, *digits, special_values=options.avro_special_values)]
    if is_enum(type_, options):
        return [_enum(array, type_.labels)]
    if is_typed_array(type_, options):
        assert type_.element is not None
        return array_pieces(array, type_.element, lambda items, element: value_pieces(items, element, options))
    return _PIECES.get(kind, string_pieces)(array)


def _bool(array: pa.Array) -> list[Piece]:
    numbers = pc.add(array.cast(pa.int8()), pa.scalar(1, pa.int8()))
    return [_BOOLS.take(numbers.fill_null(0))]


def _int(array: pa.Array) -> list[Piece]:
    return [longs(integers(array), branch=_VALUE, valid=valid_rows(array))]


def _double(array: pa.Array) -> list[Piece]:
    values = np.empty(len(array), _DOUBLE)
    values["branch"] = 2 * _VALUE
    values["value"] = array.to_numpy(zero_copy_only=False)
    valid = valid_rows(array)
    if valid is None:
        width = _DOUBLE.itemsize
        return [binary(np.arange(0, len(array) * width + 1, width, dtype=np.int64), values)]
    values["branch"][~valid] = _NULL
    matrix = values.view(np.uint8).reshape(-1, _DOUBLE.itemsize)
    keep = np.repeat(valid[:, np.newaxis], _DOUBLE.itemsize, axis=1)
    keep[:, 0] = True
    return [ragged(matrix, keep)]


def _datetimes(array: pa.Array, special: dict[int, str], options: AvroOptions) -> Piece:
    """Return dates, times or timestamps. *special* are the numbers that Avro's type cannot represent."""
    values = integers(array)
    piece = longs(values, branch=_VALUE, valid=valid_rows(array))
    for number, text in special.items():
        rows = np.flatnonzero(values == number)
        if len(rows):
            if options.avro_special_values == "error":
                raise NoRepresentationError(
                    int(rows[0]),
                    f"Avro's type has no '{text}'; set avro_special_values = 'string' to write it as text",
                )
            piece = _replaced(piece, rows, string_bytes(text, branch=_STRING))
    return piece


def _replaced(piece: Piece, rows: Ints, data: bytes) -> Piece:
    """Return *piece* with *data* as the bytes of *rows*."""
    assert not isinstance(piece, bytes)
    places = np.arange(len(piece))
    places[rows] = len(piece)
    return looked_up(pa.concat_arrays([piece, pa.array([data], pa.large_binary())]), places)


def _enum(array: pa.Array, labels: tuple[str, ...]) -> Piece:
    places = pc.index_in(array, pa.array(labels, pa.string()))
    unknown = np.flatnonzero(pc.and_(array.is_valid(), places.is_null()).to_numpy(zero_copy_only=False))
    if len(unknown):
        row = int(unknown[0])
        raise NoRepresentationError(
            row, f"'{array[row]}' is not a label of the enum in this version of the table; set avro_enum = 'string'"
        )
    return longs(integers(places), branch=_VALUE, valid=valid_rows(array))


_PIECES: dict[Kind, Callable[[pa.Array], list[Piece]]] = {
    Kind.BOOL: _bool,
    Kind.INT: _int,
    Kind.FLOAT: _double,
}
