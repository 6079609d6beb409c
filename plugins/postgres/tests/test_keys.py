from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from cdc_rangefeed_postgres.keys import key_codes, key_forms
from cdc_rangefeed_postgres.types import PgColumn
from cdc_testing.decoding import RELATION, US, T, decoder_of, read, rows_of, transaction, version_of
from cdc_testing.pgmessages import delete, insert, log, relation, update
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([insert(T, "1", "a"), update(T, "1", "b", old=["1", "a"])], [("INSERT", 1, (1, "b"), None)]),
        (
            [update(T, "1", "b", old=["1", "a"]), update(T, "1", "c", old=["1", "b"])],
            [("UPDATE", 1, (1, "c"), (1, "a"))],
        ),
        ([insert(T, "1", "a"), delete(T, old=["1", "a"])], [("DELETE", 1, None, None)]),
        ([update(T, "1", "b", old=["1", "a"]), delete(T, old=["1", "b"])], [("DELETE", 1, None, (1, "a"))]),
        ([delete(T, old=["1", "a"]), insert(T, "1", "b")], [("UPDATE", 1, (1, "b"), (1, "a"))]),
        (
            [update(T, "2", "a", old=["1", "a"]), update(T, "1", "a", old=["2", "a"])],
            [("DELETE", 2, None, None), ("UPDATE", 1, (1, "a"), (1, "a"))],
        ),
        (
            [insert(T, "1", "a"), insert(T, "2", "b"), update(T, "1", "c", old=["1", "a"])],
            [("INSERT", 2, (2, "b"), None), ("INSERT", 1, (1, "c"), None)],
        ),
    ],
)
def test_only_the_last_write_of_a_key_in_a_transaction_is_a_row(
    changes: list[bytes], expected: list[tuple[Any, ...]]
) -> None:
    assert read(*changes, diff=True) == expected


def test_the_last_write_of_every_transaction_is_a_row() -> None:
    decoder = decoder_of()
    messages = [RELATION]
    for number in range(3):
        messages += transaction(update(T, "1", str(number)), update(T, "1", f"{number}!"), us=US + number)
    assert rows_of(decoder.decode(log(*messages))) == [("UPDATE", 1, (1, f"{number}!")) for number in range(3)]


def test_keys_of_text_are_folded_too() -> None:
    version = version_of(PgColumn("id", 25), PgColumn("v", 1700), key=("v", "id"))
    changes = [insert(T, "a", "1"), insert(T, "b", "1"), update(T, "a", "1"), insert(T, "a", "2")]
    batches = decoder_of(versions={T: [version]}).decode(log(*transaction(relation(T, version.columns), *changes)))
    assert [row[1:3] for row in rows_of(batches)] == [("1", "b"), ("1", "a"), ("2", "a")]


@pytest.mark.parametrize("width", [32, 64])
def test_floats_are_one_key_where_their_texts_are_the_same(width: int) -> None:
    odd = st.sampled_from([0.0, -0.0, float("nan"), -float("nan"), float("inf"), -float("inf")])

    @given(st.lists(odd | st.floats(width=width), min_size=1))
    def check(values: list[float]) -> None:
        column = pa.array(values, pa.float32() if width == 32 else pa.float64())
        texts = [repr(value) for value in values]
        for found in (key_codes([column]).tolist(), key_forms(column).to_pylist()):
            assert len(set(zip(found, texts, strict=True))) == len(set(texts)) == len(set(found))

    check()
