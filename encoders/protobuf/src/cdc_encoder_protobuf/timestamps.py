"""Columns of timestamps as `google.protobuf.Timestamp`, seconds and nanoseconds, of the years 1 to 9999."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
from cdc_column_texts import Bools, Ints, NoRepresentationError, integers, plain_texts, valid_rows
from cdc_column_texts.binary import Piece, looked_up, varint_column

from cdc_core import ColumnType
from cdc_encoder_protobuf.fields import TIMESTAMP, delimited, tag
from cdc_encoder_protobuf.framed import ABSENT, Framed, concatenated

__all__ = ["timestamps"]

_SECOND_US = 1_000_000
_FIRST_US = int(np.datetime64("0001-01-01", "us").astype(np.int64))
_AFTER_LAST_US = int(np.datetime64("10000-01-01", "us").astype(np.int64))


def timestamps(array: pa.Array, type_: ColumnType, *, special_values: Literal["error", "string"]) -> Framed:
    """Return the content of the message `Value` of each row, absent where *array* is null.

    Raises: NoRepresentationError for a time outside of the years 1 to 9999, if *special_values* is `error`.
    """
    us, valid = integers(array), valid_rows(array)
    special = np.flatnonzero((us < _FIRST_US) | (us >= _AFTER_LAST_US))
    if len(special) and special_values == "error":
        row = int(special[0])
        text = plain_texts(array.slice(row, 1), type_)[0]
        raise NoRepresentationError(
            row,
            f"a Timestamp of Protocol Buffers has no '{text}'; set protobuf_special_values = 'string' to write it as"
            " text",
        )
    seconds = us // _SECOND_US
    nanos = (us - seconds * _SECOND_US) * 1000
    parts = [_numbers(seconds, tag(TIMESTAMP, "seconds")), _numbers(nanos, tag(TIMESTAMP, "nanos"))]
    content = concatenated(parts)
    if valid is not None:
        content = Framed(np.where(valid, content.sizes, ABSENT), content.body)
    written = content.field(tag("Value", "timestamp_value"))
    return _with_texts(written, array, type_, special) if len(special) else written


def _numbers(numbers: Ints, tag_: bytes) -> Framed:
    """Return a field of *numbers*, which is left out where it is 0. A null row has 0 here."""
    present: Bools = numbers != 0
    written, sizes = varint_column(numbers.view(np.uint64), valid=None if present.all() else present)
    if present.all():
        return Framed(sizes + len(tag_), [tag_, written])
    tags: Piece = looked_up(pa.array([b"", tag_], pa.large_binary()), present.astype(np.int8))
    return Framed(np.where(present, sizes + len(tag_), 0), [tags, written])


def _with_texts(written: Framed, array: pa.Array, type_: ColumnType, special: Ints) -> Framed:
    """Return *written* with texts in the rows *special*."""
    start = tag("Value", "string_value")
    texts = plain_texts(array.take(pa.array(special)), type_).to_pylist()
    table = pa.array([delimited(start, text.encode()) for text in texts], pa.large_binary())
    places = np.arange(len(array))
    places[special] = len(array) + np.arange(len(special))
    column = looked_up(pa.concat_arrays([written.column(len(array)), table]), places)
    valid = valid_rows(array)
    return Framed.of(column, absent=None if valid is None else np.flatnonzero(~valid))
