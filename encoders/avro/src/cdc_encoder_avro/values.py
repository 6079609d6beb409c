"""Columns as Avro unions, by the kind of their type.

The bytes are those of the value in a union of null and `types.branches`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import SPECIAL_NUMBERS, Ints, NoRepresentationError, integers, valid_rows, written_items
from cdc_column_texts.binary import Piece, binary, grouped, joined, looked_up, ragged

from cdc_core import ColumnType, Kind
from cdc_encoder_avro.decimals import decimal_pieces
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.strings import string_bytes, string_pieces
from cdc_encoder_avro.types import is_enum, is_typed_array
from cdc_encoder_avro.varints import longs

_NULL, _VALUE, _STRING = 0, 1, 2
"""Indices in a union: null, the type of the column, string."""
_BOOLS = pa.array([b"\x00", b"\x02\x00", b"\x02\x01"], pa.large_binary())
_DOUBLE = np.dtype([("branch", "u1"), ("value", "<f8")])
_ENDS = pa.array([b"", b"\x00"], pa.large_binary())


def value_pieces(array: pa.Array, type_: ColumnType, options: AvroOptions) -> list[Piece]:
    """Return the unions of a column. Raises: NoRepresentationError."""
    kind = type_.kind
    if kind in SPECIAL_NUMBERS:
        return [_datetimes(array, SPECIAL_NUMBERS[kind], options)]
    digits = type_.decimal_digits
    if digits is not None:
        return [decimal_pieces(array, *digits, special_values=options.avro_special_values)]
    if is_enum(type_, options):
        return [_enum(array, type_.labels)]
    if is_typed_array(type_, options):
        assert type_.element is not None
        return _arrays(array, type_.element, options)
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


def _arrays(array: pa.Array, element: ColumnType, options: AvroOptions) -> list[Piece]:
    """Return arrays, which are JSON texts in a `RowBatch`: one block of all items, then the end."""
    written, counts = written_items(
        array, element, lambda items, of: joined(value_pieces(items, of, options), len(items)), option="avro_arrays"
    )
    # An empty array has no block: the zero in place of the count is already its end.
    return [
        longs(counts, branch=_VALUE, valid=valid_rows(array)),
        grouped(written, counts),
        looked_up(_ENDS, (counts > 0).astype(np.int8)),
    ]


_PIECES: dict[Kind, Callable[[pa.Array], list[Piece]]] = {
    Kind.BOOL: _bool,
    Kind.INT: _int,
    Kind.FLOAT: _double,
}
