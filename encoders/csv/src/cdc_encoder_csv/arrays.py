"""Arrays: JSON texts in the rows, array literals of SQL in CSV, and back again.

A literal is the JSON text with braces for brackets: both put a backslash before a quote and a backslash in a string,
and to both `null` is null. What else JSON escapes stands in a literal as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts.items import JSON_KINDS, items_of
from cdc_column_texts.lists import list_texts
from cdc_column_texts.plain import with_nulls_of
from cdc_column_texts.splitting import structure

from cdc_core import ColumnType, Kind
from cdc_encoder_csv.years import iso_year, sql_year

__all__ = ["array_literals", "array_texts"]

_OTHER_ESCAPES = r'\\[^"\\]'
_MOMENTS = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ})
_ANCIENT = r'"(-\d|0000-)'
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPES = {code: json.dumps(chr(code))[1:-1] for code in range(32)}
_BRACES = bytes.maketrans(b"[]", b"{}")
_BRACKETS = bytes.maketrans(b"{}", b"[]")


def array_literals(array: pa.Array, element: ColumnType) -> pa.Array:
    """Return the literals of a column of arrays; arrays of composites stay JSON, since their fields have no order."""
    if element.kind is Kind.COMPOSITE:
        return array
    if element.kind in JSON_KINDS:
        return _of_documents(array, element)
    odd = pc.match_substring_regex(array, _OTHER_ESCAPES)
    if element.kind in _MOMENTS:
        odd = pc.or_(odd, pc.match_substring_regex(array, _ANCIENT))
    return _rewritten(_translated(array, _BRACES), odd, array, lambda text: _literal(json.loads(text), element))


def array_texts(literals: pa.Array, element: ColumnType) -> pa.Array:
    """Return the JSON texts of a column of array literals."""
    if element.kind is Kind.COMPOSITE:
        return literals
    texts = _translated(literals, _BRACKETS)
    odd = pc.match_substring_regex(texts, r"[\x00-\x1f]")
    if element.kind in _MOMENTS:
        odd = pc.or_(odd, pc.match_substring(texts, ' BC"'))
    texts = _rewritten(texts, odd, texts, lambda text: _STRING.sub(lambda found: _json_string(found[1]), text))
    if element.kind not in JSON_KINDS:
        return texts
    items, counts = items_of(texts, ColumnType(kind=Kind.STRING, source="text"))
    return list_texts(pc.fill_null(items.cast(pa.string()), "null"), counts, brackets="[]", nulls_of=texts)


def _translated(array: pa.Array, table: bytes) -> pa.Array:
    """Return *array* with the brackets that are not in strings changed as *table* says."""
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
    """Return *texts* with those of *odd* rows written anew from their *sources*, one by one."""
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
    text = sql_year(str(value)) if element.kind in _MOMENTS else str(value)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _json_string(inner: str) -> str:
    """Return a string of a literal, what stands between its quotes, as JSON."""
    return f'"{iso_year(inner).translate(_ESCAPES)}"'


def _of_documents(array: pa.Array, element: ColumnType) -> pa.Array:
    items, counts = items_of(array, element)
    escaped = pc.replace_substring(pc.replace_substring(items.cast(pa.string()), "\\", "\\\\"), '"', '\\"')
    quote = pa.scalar('"', pa.string())
    quoted = pc.binary_join_element_wise(quote, escaped, quote, pa.scalar("", pa.string()))
    return list_texts(pc.fill_null(quoted, "null"), counts, brackets="{}", nulls_of=array)
