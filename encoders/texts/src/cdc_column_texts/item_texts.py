"""JSON texts of arrays whose items were read one by one, as in a `RowBatch`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from cdc_column_texts.array_items import JSON_KINDS
from cdc_column_texts.json_values import SPECIAL_DECIMALS, json_pieces
from cdc_column_texts.pieces import NULL, joined
from cdc_core import ColumnType, Kind

_NO_TEXTS = frozenset({Kind.FLOAT, Kind.BYTES, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ})


def array_text(items: Sequence[Any], type_: ColumnType) -> str:
    """Return the JSON text of an array of *items*, each as Arrow stores it, or the text of a date, time or decimal."""
    texts = [NULL] * len(items)
    others = []
    for place, item in enumerate(items):
        if type_.kind in _NO_TEXTS and not isinstance(item, str | None):
            others.append(place)
        elif item is not None:
            texts[place] = _text(item, type_.kind)
    if others:
        column = pa.array([items[place] for place in others], type_.arrow)
        for place, text in zip(others, joined(json_pieces(column, type_), len(others)), strict=True):
            texts[place] = text
    return f"[{', '.join(texts)}]"


def _text(item: Any, kind: Kind) -> str:
    plain = kind in JSON_KINDS or (kind is Kind.DECIMAL and item not in SPECIAL_DECIMALS)
    return str(item) if plain else json.dumps(item, ensure_ascii=False)
