from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from cdc_rangefeed_postgres.datetimes import OutOfRangeError
from cdc_rangefeed_postgres.text import decode_text

from cdc_core import ColumnType, Kind

_DAY_US = 86_400_000_000
_INT64, _INT32 = np.iinfo(np.int64), np.iinfo(np.int32)


def _decode(kind: Kind, *texts: str | None, bits: int | None = None) -> pa.Array:
    type_ = ColumnType(kind=kind, source="x", bits=bits)
    array = decode_text(pa.array(texts, pa.string()), type_)
    assert array.type == type_.arrow
    return array


def test_booleans_numbers_and_nulls() -> None:
    assert _decode(Kind.BOOL, "t", None, "f").to_pylist() == [True, None, False]
    assert _decode(Kind.INT, "-32768", None, bits=16).to_pylist() == [-32768, None]
    assert _decode(Kind.INT, "9223372036854775807", bits=64).to_pylist() == [2**63 - 1]
    assert _decode(Kind.FLOAT, "1e-45", "Infinity", bits=32).to_pylist() == [pytest.approx(1.4e-45, 0.01), np.inf]
    assert str(_decode(Kind.FLOAT, "NaN", "-0", bits=64).to_pylist()) == "[nan, -0.0]"


@pytest.mark.parametrize(
    "kind", [Kind.STRING, Kind.DECIMAL, Kind.UUID, Kind.JSON, Kind.ENUM, Kind.INTERVAL, Kind.TIMETZ]
)
def test_texts_are_not_changed(kind: Kind) -> None:
    assert _decode(kind, "a  ", "", None, "é🎉").to_pylist() == ["a  ", "", None, "é🎉"]


def test_hexadecimal_digits_become_bytes() -> None:
    assert _decode(Kind.BYTES, "\\x00ff7f", None, "\\x", "\\x61").to_pylist() == [b"\x00\xff\x7f", None, b"", b"a"]
    assert _decode(Kind.BYTES).to_pylist() == []


def test_bytes_of_a_sliced_column() -> None:
    texts = pa.array(["\\x00", "\\x61ff", None, "\\x62"]).slice(1)
    decoded = decode_text(texts, ColumnType(kind=Kind.BYTES, source="bytea"))
    assert decoded.to_pylist() == [b"a\xff", None, b"b"]


def test_times_have_their_microseconds_and_the_end_of_the_day() -> None:
    times = _decode(Kind.TIME, "00:00:00", "24:00:00", None, "12:34:56.5", "23:59:59.999999", "00:00:00.000001")
    assert times.view(pa.int64()).to_pylist() == [0, _DAY_US, None, 45_296_500_000, _DAY_US - 1, 1]
    assert _decode(Kind.TIME, None).to_pylist() == [None]


def test_dates_of_all_years_and_infinities() -> None:
    texts = ["1970-01-01", "2020-02-29", None, "infinity", "-infinity", "0001-01-01", "0001-12-31 BC", "5874897-12-31"]
    days = _decode(Kind.DATE, *texts).view(pa.int32()).to_pylist()
    assert days == [0, 18_321, None, _INT32.max, _INT32.min, -719_162, -719_163, 2_145_042_905]


@pytest.mark.parametrize(("kind", "zone"), [(Kind.TIMESTAMP, ""), (Kind.TIMESTAMPTZ, "+00")])
def test_timestamps_of_all_years_and_infinities(kind: Kind, zone: str) -> None:
    expected = {
        f"1970-01-01 00:00:00{zone}": 0,
        f"1969-12-31 23:59:59.5{zone}": -500_000,
        None: None,
        "infinity": _INT64.max,
        "-infinity": _INT64.min,
        f"10000-01-01 00:00:00.000001{zone}": 2_932_897 * _DAY_US + 1,
        f"0001-12-31 00:00:00{zone} BC": -719_163 * _DAY_US,
        f"4714-11-24 00:00:00{zone} BC": -2_440_588 * _DAY_US,
    }
    decoded = _decode(kind, *expected).view(pa.int64())
    assert decoded.to_pylist() == list(expected.values())


def test_a_timestamp_out_of_range_is_refused() -> None:
    with pytest.raises(OutOfRangeError):
        _decode(Kind.TIMESTAMP, "294247-01-10 04:00:54.775807")


def test_a_session_with_another_datestyle_is_refused() -> None:
    with pytest.raises(ValueError, match="not a date or timestamp of a session with DateStyle ISO"):
        _decode(Kind.TIMESTAMP, "31/01/2020 01:02:03")
