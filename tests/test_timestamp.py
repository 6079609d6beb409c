"""Timestamps: order, text form, neighbours."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core import Timestamp

timestamps = st.builds(Timestamp, st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1))


@given(timestamps)
def test_parse_reads_what_str_wrote(timestamp: Timestamp) -> None:
    assert Timestamp.parse(str(timestamp)) == timestamp


def test_text_has_ten_digits_of_logical() -> None:
    assert str(Timestamp(1700000000000000000, 7)) == "1700000000000000000.0000000007"


@pytest.mark.parametrize("text", ["", "1", "1.2", "1.00000000001", "-1.0000000000", "1.0000000000 ", "1.9999999999"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        Timestamp.parse(text)
    assert not Timestamp.is_text(text)


def test_the_text_form_is_recognized_before_it_is_read() -> None:
    assert Timestamp.is_text("1.0000000002")
    assert not Timestamp.is_text("9" * 5000 + ".0000000000"), "more digits than Python reads"


@given(timestamps)
def test_people_may_write_the_text_form(timestamp: Timestamp) -> None:
    assert Timestamp.read(str(timestamp)) == timestamp


CENTURY = (946_684_800, 4_102_444_799)
"""Seconds of the years 2000 to 2099."""


@given(st.integers(CENTURY[0] * 10**9, CENTURY[1] * 10**9))
def test_people_may_write_nanoseconds_of_this_century(wall: int) -> None:
    assert Timestamp.read(str(wall)) == Timestamp(wall)


@given(st.integers(*CENTURY), st.sampled_from([("seconds", 9), ("milliseconds", 6), ("microseconds", 3)]))
def test_a_number_in_another_unit_is_refused_with_its_nanoseconds(seconds: int, unit: tuple[str, int]) -> None:
    name, zeros = unit
    told = rf"^must be in nanoseconds since 1970, but is in {name}; write {seconds}000000000$"
    with pytest.raises(ValueError, match=told):
        Timestamp.read(str(seconds * 10 ** (9 - zeros)))


@pytest.mark.parametrize("text", ["0", "5", "20260131", "4102444800000000000", "9" * 30, "9" * 5000])
def test_a_number_that_is_no_time_of_this_century_is_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"^must be in nanoseconds since 1970, but this number is not a time in the years 2000 to 2099"
    ):
        Timestamp.read(text)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01T00:00:01Z", 10**9),
        ("1970-01-01 02:00:01+02:00", 10**9),
        ("1970-01-01T00:00:00.123456789Z", 123456789),
        ("1970-01-01T00:00:00,5+00:00", 500_000_000),
        ("19700101T000001Z", 10**9),
        ("2026-01-31T12:00:00Z", 1769860800 * 10**9),
    ],
)
def test_people_may_write_iso_8601(text: str, nanoseconds: int) -> None:
    assert Timestamp.read(text) == Timestamp(nanoseconds)


@pytest.mark.parametrize(
    "text", ["", "now", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31T12:00:00.0000000001Z", "9999-01-01T00:00:00Z"]
)
def test_a_time_must_have_a_zone_and_fit(text: str) -> None:
    with pytest.raises(ValueError, match="time"):
        Timestamp.read(text)


@given(timestamps, timestamps)
def test_order_is_by_wall_then_logical(one: Timestamp, other: Timestamp) -> None:
    assert (one < other) == ((one.wall, one.logical) < (other.wall, other.logical))


@given(timestamps)
def test_next_and_prev_are_neighbours(timestamp: Timestamp) -> None:
    assert timestamp.next() > timestamp
    assert timestamp.next().prev() == timestamp


def test_next_of_the_last_logical_moves_the_wall() -> None:
    assert Timestamp(5, 2**31 - 1).next() == Timestamp(6, 0)
    assert Timestamp(6, 0).prev() == Timestamp(5, 2**31 - 1)


def test_nothing_is_before_zero() -> None:
    with pytest.raises(ValueError, match="out of range"):
        Timestamp().prev()


@pytest.mark.parametrize(("wall", "logical"), [(-1, 0), (0, -1), (0, 2**31)])
def test_out_of_range_is_refused(wall: int, logical: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        Timestamp(wall, logical)


def test_only_zero_is_false() -> None:
    assert not Timestamp()
    assert Timestamp(0, 1)
    assert Timestamp(1)


def test_datetime_is_utc_cut_to_microseconds() -> None:
    assert Timestamp(1_000_001_999, 3).to_datetime() == datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)
