"""Arrays: JSON texts in a `RowBatch`, SQL array literals in CSV.

A literal is the JSON text with braces in place of brackets. Both escape a quote and a backslash in a string with a
backslash, and `null` is null in both. Other characters that JSON escapes are not escaped in a literal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import JSON_KINDS, items_of, list_texts, structure, with_nulls_of

from cdc_core import ColumnType, Kind
from cdc_encoder_csv.years import iso_year, sql_year

_OTHER_ESCAPES = r'\\[^"\\]'
_DATETIMES = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ})
_ANCIENT = r'"(-\d|0000-)'
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPES = {code: json.dumps(chr(code))[1:-1] for code in range(32)}
_BRACES = bytes.maketrans(b"[]", b"{}")
_BRACKETS = bytes.maketrans(b"{}", b"[]")


def array_literals(array: pa.Array, element: ColumnType) -> pa.Array:
    """Return the literals of a column of arrays. Arrays of composites remain JSON: their fields are unordered."""
    if element.kind is Kind.COMPOSITE:
        return array
    if element.kind in JSON_KINDS:
        return _of_documents(array, element)
    odd = pc.match_substring_regex(array, _OTHER_ESCAPES)
    if element.kind in _DATETIMES:
        odd = pc.or_(odd, pc.match_substring_regex(array, _ANCIENT))
    return _rewritten(_translated(array, _BRACES), odd, array, lambda text: _literal(json.loads(text), element))


def array_texts(literals: pa.Array, element: ColumnType) -> pa.Array:
    """Return the JSON texts of a column of array literals."""
    if element.kind is Kind.COMPOSITE:
        return literals
    texts = _translated(literals, _BRACKETS)
    odd = pc.match_substring_regex(texts, r"[\x00-\x1f]")
    if element.kind in _DATETIMES:
        odd = pc.or_(odd, pc.match_substring(texts, ' BC"'))
    texts = _rewritten(texts, odd, texts, lambda text: _STRING.sub(lambda found: _json_string(found[1]), text))
    if element.kind not in JSON_KINDS:
        return texts
    items, counts = items_of(texts, ColumnType(kind=Kind.STRING, source="text"))
    return list_texts(pc.fill_null(items.cast(pa.string()), "null"), counts, brackets="[]", nulls_of=texts)


def _translated(array: pa.Array, table: bytes) -> pa.Array:
    """Return *array* with the brackets outside of strings translated by *table*."""
    texts = array.fill_null("") if array.null_count else array
    if len(texts) == 0:
        return array
    bounds = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]].copy()
    places, _ = structure(data)
    data[places] = np.frombuffer(table, np.uint8)[data[places]]
    changed = pa.Array.from_buffers(
        pa.string(), len(texts), [None, pa.py_buffer(bounds - bounds[0]), pa.py_buffer(data)]
    )
    return with_nulls_of(array, changed)


def _rewritten(texts: pa.Array, odd: pa.Array, sources: pa.Array, write: Callable[[str], str]) -> pa.Array:
    """Return *texts*, those of *odd* rows rewritten one by one from their *sources*."""
    odd = pc.fill_null(odd, pa.scalar(value=False))
    if not pc.any(odd, min_count=0).as_py():
        return texts
    written = [write(text) for text in sources.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd, pa.array(written, pa.string()))


def _literal(value: Any, element: ColumnType) -> str:
    if isinstance(value, list):
        return f"{{{', '.join(_literal(item, element) for item in value)}}}"
    if value is None:
        return "null"
    text = sql_year(str(value)) if element.kind in _DATETIMES else str(value)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _json_string(inner: str) -> str:
    """Return the JSON string of *inner*, the text between the quotes of a literal's string."""
    return f'"{iso_year(inner).translate(_ESCAPES)}"'


def _of_documents(array: pa.Array, element: ColumnType) -> pa.Array:
    items, counts = items_of(array, element)
    escaped = pc.replace_substring(pc.replace_substring(items.cast(pa.string()), "\\", "\\\\"), '"', '\\"')
    quote = pa.scalar('"', pa.string())
    quoted = pc.binary_join_element_wise(quote, escaped, quote, pa.scalar("", pa.string()))
    return list_texts(pc.fill_null(quoted, "null"), counts, brackets="{}", nulls_of=array)
