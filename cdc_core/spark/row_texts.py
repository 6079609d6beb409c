"""Rows as JSON objects, with each value as the JSON encoder writes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.schema import Kind, TableSchema
from cdc_core.spark.column_types import cast, short_times

__all__ = ["row_texts"]

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_RARE_ESCAPES = {chr(code): f"\\u{code:04x}" for code in range(0x20) if chr(code) not in _ESCAPES}
_RARE = r"[\x00-\x08\x0b\x0c\x0e-\x1f]"


def row_texts(rows: pa.StructArray, schema: TableSchema) -> pa.StringArray:
    """Return *rows*, with the columns of *schema*, as JSON objects on one line each; null where a row is null."""
    values = dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
    pieces: list[str | pa.Array] = []
    for column in sorted(schema.columns, key=lambda column: column.name):
        texts = _TEXTS.get(column.type.kind, _quoted)(values[column.name])
        pieces += [f"{', ' if pieces else '{'}{json.dumps(column.name, ensure_ascii=False)}: ", texts]
    texts = pc.binary_join_element_wise(*pieces, "}", "", null_handling="replace", null_replacement="null")
    return pc.if_else(rows.is_valid(), texts, pa.scalar(None, pa.string()))


def _plain(values: pa.Array) -> pa.StringArray:
    return values.cast(pa.string())


def _numbers(values: pa.Array) -> pa.StringArray:
    """Return decimals or floats, NaN and infinities in quotes."""
    return pc.replace_substring_regex(cast(values, pa.string()), r"^(NaN|-?Infinity)$", r'"\1"')


def _floats(values: pa.Array) -> pa.StringArray:
    """Return floats as JavaScript writes numbers: with the fewest digits, and exponents from 21 digits on."""
    numbers = np.asarray(values.fill_null(0))
    size = np.abs(numbers)
    odd = np.isfinite(numbers) & (size != 0) & ((size < 1e-4) | (size >= 1e12))
    texts = pc.replace_substring_regex(_numbers(values), r"\.0$", "")
    if not odd.any():
        return texts
    return pc.replace_with_mask(texts, pa.array(odd), pa.array([_script_number(each) for each in numbers[odd]]))


def _script_number(number: np.floating) -> str:
    digits, _, power = str(number).partition("e")
    if not power:
        return digits.removesuffix(".0")
    exponent = int(power)
    return f"{Decimal(str(number)):f}" if -6 <= exponent < 21 else f"{digits}e{exponent:+d}"


def _json(values: pa.Array) -> pa.StringArray:
    """Return JSON texts, in which a line end can only be between tokens."""
    return pc.replace_substring_regex(values, "[\n\r]", " ")


def _times(values: pa.Array) -> pa.StringArray:
    return _quoted(pc.replace_substring(short_times(cast(values, pa.string())), " ", "T"))


def _quoted(values: pa.Array) -> pa.StringArray:
    texts = cast(values, pa.string())
    rare = pc.any(pc.match_substring_regex(texts, _RARE)).as_py()
    for character, escape in (_ESCAPES | _RARE_ESCAPES if rare else _ESCAPES).items():
        texts = pc.replace_substring(texts, character, escape)
    return pc.binary_join_element_wise('"', texts, '"', "")


_TEXTS: dict[Kind, Callable[[pa.Array], pa.StringArray]] = {
    Kind.BOOL: _plain,
    Kind.INT: _plain,
    Kind.FLOAT: _floats,
    Kind.DECIMAL: _numbers,
    Kind.TIME: _times,
    Kind.TIMESTAMP: _times,
    Kind.TIMESTAMPTZ: _times,
    Kind.JSON: _json,
    Kind.ARRAY: _json,
    Kind.COMPOSITE: _json,
}
"""By kind; the others are texts."""
