from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from cdc_column_texts import split_arrays
from hypothesis import given, settings
from hypothesis import strategies as st

TEXT = st.text(st.sampled_from('ab\\"[]{},: é😀\n') | st.characters(codec="utf-8"), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
STYLES = st.sampled_from([{}, {"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": False}])


@settings(deadline=None)
@given(rows=st.lists(st.lists(VALUES, max_size=4), max_size=5), style=STYLES, cut=st.integers(0, 2))
def test_items_of_any_content_are_found(rows: list[list[Any]], style: dict[str, Any], cut: int) -> None:
    texts = [json.dumps(row, **style) for row in rows]
    items, counts = split_arrays(pa.array(texts, pa.string()).slice(cut))
    assert counts.tolist() == [len(row) for row in rows[cut:]]
    assert [json.loads(item) for item in items.to_pylist()] == [value for row in rows[cut:] for value in row]


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("[]", []),
        (" [ \n] ", []),
        ('[""]', ['""']),
        ('["\\\\"]', ['"\\\\"']),
        ('["\\\\\\"," , 1.50]', ['"\\\\\\","', "1.50"]),
        ('[ {"a": [1, 2]} ,[ ] ]', ['{"a": [1, 2]}', "[ ]"]),
    ],
)
def test_items_keep_their_text(text: str, items: list[str]) -> None:
    found, counts = split_arrays(pa.array([text, text]))
    assert found.to_pylist() == items * 2
    assert counts.tolist() == [len(items)] * 2
