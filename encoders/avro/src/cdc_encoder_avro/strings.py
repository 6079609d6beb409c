"""Columns of Avro strings and bytes: the length as a long, then the bytes. `Timestamp`s are strings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from cdc_column_texts import hlc_runs, valid_rows
from cdc_column_texts.binary import Piece, byte_sizes, joined

from cdc_encoder_avro.varints import lengths, long_bytes


def string_pieces(array: pa.Array, *, branch: int | None = 1) -> list[Piece]:
    """Return the values of a string or binary *array*, each after index *branch* of its union. A null is index 0."""
    valid = valid_rows(array)
    sizes = byte_sizes(array)
    if valid is not None:
        sizes = np.where(valid, sizes, 0)
    return [lengths(sizes, branch=branch, valid=valid), array.cast(pa.large_binary())]


def string_bytes(text: str, *, branch: int) -> bytes:
    """Return one string, after the index *branch* of its union."""
    data = text.encode()
    return long_bytes(branch) + long_bytes(len(data)) + data


def timestamp_pieces(timestamps: pa.StructArray) -> list[Piece]:
    """Return a column of `Timestamp`s as unions of null and string: `<wall ns>.<logical, 10 digits>`."""
    texts, places = hlc_runs(timestamps)
    written = joined(string_pieces(texts), len(texts))
    if len(texts) == 1:
        return [written[0].as_py()]
    return [written if places is None else written.take(places)]
