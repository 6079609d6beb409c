from __future__ import annotations

import struct
import uuid

import numpy as np
import pyarrow as pa
import pytest
from cdc_rangefeed_postgres.binary import decode_binary
from cdc_rangefeed_postgres.datetimes import DATE_EPOCH_DAYS, TIMESTAMP_EPOCH_US, OutOfRangeError
from cdc_rangefeed_postgres.types import PgColumn, TypeCatalog, column_type
from cdc_testing.pgmessages import field_column

_INT64, _INT32 = np.iinfo(np.int64), np.iinfo(np.int32)


def _decode(oid: int, *values: bytes | None) -> pa.Array:
    """Decode a column whose last value ends at the end of the buffer."""
    type_ = column_type(PgColumn("c", oid), TypeCatalog())
    array = decode_binary(field_column(values), type_, oid)
    assert array.type == type_.arrow
    array.validate(full=not pa.types.is_time(array.type))  # Arrow's own limit for times is below 24:00:00
    return array


@pytest.mark.parametrize(
    ("oid", "form", "values"),
    [
        (16, ">?", [True, False]),
        (21, ">h", [-(2**15), 2**15 - 1]),
        (23, ">i", [-(2**31), 2**31 - 1]),
        (20, ">q", [-(2**63), 2**63 - 1]),
        (700, ">f", [0.5, float("-inf")]),
        (701, ">d", [0.1, float("inf")]),
    ],
)
def test_fixed_widths_with_nulls(oid: int, form: str, values: list[object]) -> None:
    packed = [struct.pack(form, value) for value in values]
    assert _decode(oid, *packed).to_pylist() == values
    assert _decode(oid, None, *packed, None).to_pylist() == [None, *values, None]
    assert _decode(oid, None).to_pylist() == [None]
    assert _decode(oid).to_pylist() == []


def test_an_oid_is_the_text_of_an_unsigned_number() -> None:
    assert _decode(26, struct.pack(">I", 2**32 - 1), None).to_pylist() == ["4294967295", None]


def test_texts_and_bytes_of_any_length() -> None:
    assert _decode(25, b"", None, "é🎉".encode(), b"x" * 1000).to_pylist() == ["", None, "é🎉", "x" * 1000]
    assert _decode(17, b"\x00\xff", b"", None).to_pylist() == [b"\x00\xff", b"", None]


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        _decode(25, b"\xff")


def test_jsonb_loses_its_version_byte_and_json_has_none() -> None:
    assert _decode(3802, b"\x01null", None, b"\x01[1]").to_pylist() == ["null", None, "[1]"]
    assert _decode(114, b"null").to_pylist() == ["null"]


def test_uuids_are_canonical_text() -> None:
    values = [uuid.UUID(int=number * 2**120 + number) for number in (0, 1, 171)]
    assert _decode(2950, None, *(value.bytes for value in values)).to_pylist() == [None, *map(str, values)]
    assert _decode(2950, values[1].bytes, None).to_pylist() == [str(values[1]), None]


def test_dates_and_their_infinities() -> None:
    days = _decode(1082, *(struct.pack(">i", day) for day in (0, -1, _INT32.max, _INT32.min)), None)
    assert days.view(pa.int32()).to_pylist() == [DATE_EPOCH_DAYS, DATE_EPOCH_DAYS - 1, _INT32.max, _INT32.min, None]


@pytest.mark.parametrize("oid", [1114, 1184])
def test_timestamps_and_their_infinities(oid: int) -> None:
    last = _INT64.max - TIMESTAMP_EPOCH_US - 1
    us = _decode(oid, *(struct.pack(">q", value) for value in (0, last, _INT64.max, _INT64.min)), None)
    assert us.view(pa.int64()).to_pylist() == [TIMESTAMP_EPOCH_US, _INT64.max - 1, _INT64.max, _INT64.min, None]
    with pytest.raises(OutOfRangeError):
        _decode(oid, struct.pack(">q", last + 1))


def test_the_last_microsecond_of_a_day() -> None:
    times = _decode(1083, struct.pack(">q", 86_400_000_000), None)
    assert times.view(pa.int64()).to_pylist() == [86_400_000_000, None]
