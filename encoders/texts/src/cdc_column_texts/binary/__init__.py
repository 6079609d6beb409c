"""Binary forms of whole columns, joined from pieces, for encoders of binary formats."""

from cdc_column_texts.binary.pieces import (
    Piece,
    binary,
    byte_sizes,
    distinct,
    grouped,
    joined,
    looked_up,
    offsets_of,
    ragged,
)
from cdc_column_texts.binary.varints import varint_bytes, varint_column, varint_matrix, varint_widths

__all__ = [
    "Piece",
    "binary",
    "byte_sizes",
    "distinct",
    "grouped",
    "joined",
    "looked_up",
    "offsets_of",
    "ragged",
    "varint_bytes",
    "varint_column",
    "varint_matrix",
    "varint_widths",
]
