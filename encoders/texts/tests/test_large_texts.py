"""A large value is written in parts, with the text that it would have otherwise."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from cdc_column_texts import joined, joined_bytes, json_pieces, large_texts

from cdc_core import ColumnType, Kind

ODD = 'a"b\\c\nd\re\tf\x01g\x7fü\u2028😀"'


@pytest.mark.parametrize(
    ("kind", "type_", "value"),
    [
        (Kind.STRING, pa.string(), ODD),
        (Kind.STRING, pa.string(), "plain"),
        (Kind.BYTES, pa.binary(), bytes(range(256))),
        (Kind.JSON, pa.string(), '{"a":\n "b\\n",\r\n"c": null}'),
        (Kind.ARRAY, pa.string(), '["a",\n"ü"]'),
    ],
)
@pytest.mark.parametrize("chunk", [1, 2, 7, 1000])
def test_a_large_value_has_the_text_of_a_small_one(
    kind: Kind, type_: pa.DataType, value: Any, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    column, array = (
        ColumnType(kind=kind, source="x"),
        pa.array(["skipped" if kind != Kind.BYTES else b"", value], type_),
    )
    array = array.slice(1)
    small = json_pieces(array, column)
    wanted = joined(["<", *small, ">"], 1).to_list()
    monkeypatch.setattr(large_texts, "LARGE_BYTES", 0)
    monkeypatch.setattr(large_texts, "_CHUNK_BYTES", chunk)
    large = json_pieces(array, column)
    assert any(isinstance(piece, large_texts.LargeText) for piece in large)
    assert joined(["<", *large, ">"], 1).to_list() == wanted
    assert joined_bytes(["<", *large, ">"], 1).to_pylist() == [wanted[0].encode()]


def test_several_values_and_nulls_are_not_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_texts, "LARGE_BYTES", 0)
    column = ColumnType(kind=Kind.STRING, source="text")
    for values in (["a", "b"], [None], []):
        pieces = json_pieces(pa.array(values, pa.string()), column)
        assert not any(isinstance(piece, large_texts.LargeText) for piece in pieces)


def test_a_large_text_takes_little_more_memory_than_itself() -> None:
    array = pa.array([b"\x00" * 50_000_000], pa.binary())
    before = pa.total_allocated_bytes()
    text = joined_bytes(json_pieces(array, ColumnType(kind=Kind.BYTES, source="bytea")), 1)
    assert len(text[0].as_buffer()) == 100_000_005
    assert pa.total_allocated_bytes() - before < 1_000_000  # it is Python's memory
