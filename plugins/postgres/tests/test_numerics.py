from __future__ import annotations

import struct
from decimal import Decimal

import pytest
from cdc_rangefeed_postgres import numerics
from cdc_rangefeed_postgres.numerics import numeric_texts
from cdc_testing.pgmessages import field_column
from hypothesis import given
from hypothesis import strategies as st


def _numeric(text: str) -> bytes:
    """Return the output of numeric_send for a decimal text."""
    number = Decimal(text)
    sign = 0x4000 if number < 0 else 0
    whole, _, decimals = text.lstrip("-").partition(".")
    groups = -(-len(whole) // 4)
    padded = whole.rjust(groups * 4, "0") + decimals + "0" * (-len(decimals) % 4)
    digits = [int(padded[at : at + 4]) for at in range(0, len(padded), 4)]
    weight = groups - 1
    while digits and digits[0] == 0:
        digits, weight = digits[1:], weight - 1
    while digits and digits[-1] == 0:
        digits = digits[:-1]
    head = struct.pack(">hhHH", len(digits), weight if digits else 0, sign, len(decimals))
    return head + struct.pack(f">{len(digits)}H", *digits)


def _special(sign: int) -> bytes:
    return struct.pack(">hhHH", 0, 0, sign, 0)


_SPECIALS = {"NaN": _special(0xC000), "Infinity": _special(0xD000), "-Infinity": _special(0xF000)}


@pytest.mark.parametrize(
    "text",
    ["0", "0.00", "1", "-1", "10000", "100000000", "9999", "0.0001", "0.00000001", "-12.30", "1000000000000.0001",
     "123456789012345678901234567890.123456789012345678901234567890", "0.10", "5.0000", "10000.0000"],
)  # fmt: skip
def test_numbers_have_the_text_that_was_written(text: str) -> None:
    assert numeric_texts(field_column([_numeric(text)])).to_pylist() == [text]


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.sampled_from(sorted(_SPECIALS)),
            st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30).map(
                lambda number: format(number.copy_abs() if number.is_zero() else number, "f")
            ),
        ),
        min_size=1,
    )
)
def test_any_column_of_numbers_nulls_and_special_values_is_correct(texts: list[str | None]) -> None:
    values = [None if text is None else _SPECIALS.get(text) or _numeric(text) for text in texts]
    assert numeric_texts(field_column(values)).to_pylist() == texts


def test_a_column_of_nulls_is_null() -> None:
    assert numeric_texts(field_column([None, None])).to_pylist() == [None, None]


def test_an_empty_column_is_empty() -> None:
    assert numeric_texts(field_column([])).to_pylist() == []


def test_texts_written_in_several_parts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{number}.{number:04d}" for number in range(500)]
    monkeypatch.setattr(numerics, "_AT_ONCE_BYTES", 50)
    assert numeric_texts(field_column([_numeric(text) for text in texts])).to_pylist() == texts
