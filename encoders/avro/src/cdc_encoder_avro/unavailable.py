"""The field `unavailable`: the fields of a row whose values the source does not know, and which are null."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from cdc_column_texts.binary import Piece, looked_up

from cdc_core import RowBatch, unavailable_sets
from cdc_encoder_avro.names import avro_name
from cdc_encoder_avro.varints import long_bytes

UNAVAILABLE_TYPE = {"type": "array", "items": "string"}
"""The type of the field besides null."""
_PRESENT, _END = b"\x02", b"\x00"


def unavailable_pieces(rows: RowBatch, *, complete: bytes) -> list[Piece]:
    """Return the union of null and the field, with *complete* for a row that has all its values."""
    sets = unavailable_sets(rows)
    return by_row(rows, [_names(names) if names else complete for names, _ in sets])


def by_row(rows: RowBatch, texts: list[bytes]) -> list[Piece]:
    """Return one of *texts* for each row, by the place of its set in `unavailable_sets`."""
    places = np.zeros(len(rows), np.int64)
    for place, (_, indices) in enumerate(unavailable_sets(rows)):
        places[indices] = place
    return [looked_up(pa.array(texts, pa.large_binary()), places)]


def _names(names: tuple[str, ...]) -> bytes:
    items = b""
    for name in names:
        data = avro_name(name).encode()
        items += long_bytes(len(data)) + data
    return _PRESENT + long_bytes(len(names)) + items + _END
