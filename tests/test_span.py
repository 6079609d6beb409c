"""Spans: overlap and difference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core import Span

keys = st.binary(max_size=2)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start, end = draw(keys), draw(st.none() | keys)
    return Span("t", start, None if end is not None and end <= start else end)


def holds(span: Span, key: bytes) -> bool:
    return span.start <= key and (span.end is None or key < span.end)


@given(spans(), spans(), keys)
def test_overlap_has_exactly_the_common_keys(one: Span, other: Span, key: bytes) -> None:
    common = one.overlap(other)
    assert (common is not None and holds(common, key)) == (holds(one, key) and holds(other, key))


@given(spans(), spans(), keys)
def test_minus_has_exactly_the_keys_left(one: Span, other: Span, key: bytes) -> None:
    left = one.minus(other)
    assert sum(holds(span, key) for span in left) == (holds(one, key) and not holds(other, key))


def test_spans_of_different_tables_share_nothing() -> None:
    assert Span("a").overlap(Span("b")) is None
    assert Span("a").minus(Span("b")) == [Span("a")]


@pytest.mark.parametrize(("start", "end"), [(b"b", b"a"), (b"a", b"a"), (b"", b"")])
def test_empty_spans_are_refused(start: bytes, end: bytes) -> None:
    with pytest.raises(ValueError, match="empty span"):
        Span("t", start, end)


def test_a_whole_table_is_shown_by_its_name() -> None:
    assert str(Span("db.public.t")) == "db.public.t"
    assert str(Span("t", b"\x01", b"\x02")) == "t[01,02)"
    assert str(Span("t", b"\x01")) == "t[01,)"
