"""Arrays: JSON texts in the rows, blocks of typed items in Avro."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from cdc_core import ColumnType
from cdc_encoder_avro.pieces import Piece

__all__ = ["array_pieces"]


def array_pieces(
    array: pa.Array, element: ColumnType, item_pieces: Callable[[pa.Array, ColumnType], list[Piece]]
) -> list[Piece]:
    raise NotImplementedError
