"""Columns of every kind, with ordinary values and values that encoders often get wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any

from cdc_core import ColumnType, Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A column and its values, as `RowBatch` columns are built from them. Numbers stand for values that Python lacks.

    An encoder that accepts the column must write *ordinary* values. It may refuse *odd* values, but not change them.
    """

    name: str
    topic: str
    """The promise about such values: numbers, texts, bytes, datetimes, plain or nested."""
    type: ColumnType
    ordinary: Sequence[Any]
    odd: Sequence[Any] = ()


def _type(kind: Kind, source: str, **more: Any) -> ColumnType:
    return ColumnType(kind=kind, source=source, **more)


def _array(element: ColumnType) -> ColumnType:
    return _type(Kind.ARRAY, f"{element.source}[]", element=element)


_INF_32, _INF_64, _DAY = 2**31 - 1, 2**63 - 1, 86_400_000_000
_YEAR_10000, _YEAR_100000_US = 2_932_897, 3_093_527_980_800_000_000
_INT4, _INT8 = _type(Kind.INT, "integer", bits=32), _type(Kind.INT, "bigint", bits=64)
_REAL, _DOUBLE = _type(Kind.FLOAT, "real", bits=32), _type(Kind.FLOAT, "double precision", bits=64)
_NUMERIC = _type(Kind.DECIMAL, "numeric")
_PRICE = _type(Kind.DECIMAL, "numeric(10,2)", precision=10, scale=2)
_TEXT, _UUID, _BYTES = _type(Kind.STRING, "text"), _type(Kind.UUID, "uuid"), _type(Kind.BYTES, "bytea")
_DATE, _TIME = _type(Kind.DATE, "date"), _type(Kind.TIME, "time")
_STAMP, _STAMPTZ = _type(Kind.TIMESTAMP, "timestamp"), _type(Kind.TIMESTAMPTZ, "timestamptz")
_JSON = _type(Kind.JSON, "jsonb")
_NAN, _INF = float("nan"), float("inf")
_CONTROLS = "".join(map(chr, range(32)))
_A_UUID = "09265ab7-5f3a-40cb-a543-d37c8c893793"

SAMPLES: tuple[Sample, ...] = (
    Sample(name="int2", topic="numbers", type=_type(Kind.INT, "smallint", bits=16), ordinary=[0, 1, -1, 300],
        odd=[2**15 - 1, -(2**15)]),
    Sample(name="int4", topic="numbers", type=_INT4, ordinary=[0, 7, -70_000], odd=[2**31 - 1, -(2**31)]),
    Sample(name="int8", topic="numbers", type=_INT8, ordinary=[0, 7, -(10**12)],
        odd=[2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1]),
    Sample(name="float4", topic="numbers", type=_REAL, ordinary=[0.0, 1.5, -0.25, 0.1, 1e10],
        odd=[-0.0, _NAN, _INF, -_INF, 3.4028234663852886e38, 1.401298464324817e-45, 16777217.0]),
    Sample(name="float8", topic="numbers", type=_DOUBLE, ordinary=[0.0, 1.5, -0.25, 0.1, 1e10],
        odd=[-0.0, _NAN, _INF, -_INF, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 1e21, 1e-7, 0.1 + 0.2]),
    Sample(name="price", topic="numbers", type=_PRICE, ordinary=["22.30", "0.00", "-1.05", "99999999.99"],
        odd=["NaN", "-99999999.99", "-0.01"]),
    Sample(name="wide_decimal", topic="numbers", type=_type(Kind.DECIMAL, "numeric(120,60)", precision=120, scale=60),
        ordinary=[f"1.{'0' * 59}1"],
        odd=[f"{'9' * 60}.{'9' * 60}", f"-{'9' * 60}.{'0' * 60}", f"0.{'0' * 59}1"]),
    Sample(name="free_decimal", topic="numbers", type=_NUMERIC, ordinary=["1", "22.30", "-0.5", "100"],
        odd=["NaN", "Infinity", "-Infinity", "9" * 1000, f"0.{'0' * 500}1", f"-{'9' * 100}.{'9' * 300}", "1,5"]),
    Sample(name="text", topic="texts", type=_TEXT,
        ordinary=["a", "plain text", "with \"quotes\" and 'others'", "a \\ and a / in it", "two\nlines"],
        odd=["", " ", " lead and trail ", _CONTROLS, "\x00", "\r\n", "\x7f\x80\x9f", "é, ß, Привет, 你好, עברית",
            "e\u0301 is not \u00e9", "\U0001f600 \U0010fffd \ufffe \uffff \ue000", "\u2028\u2029\ufeff\u200b", "null",
            '{"a": 1}', "\\u0041", "NaN", "x" * 70_000]),
    Sample(name="varchar", topic="texts", type=_type(Kind.STRING, "varchar(5)"), ordinary=["abc"], odd=["é" * 5]),
    Sample(name="bytes", topic="bytes", type=_BYTES, ordinary=[b"ab", b"\x00\x01"],
        odd=[b"", bytes(range(256)), b"\\x6162", b"\n", b"\xff" * 70_000]),
    Sample(name="date", topic="datetimes", type=_DATE, ordinary=[date(2020, 2, 29), date(1970, 1, 1), date(1900, 1, 1)],
        odd=[_INF_32, -_INF_32 - 1, date(9999, 12, 31), date(1, 1, 1), _YEAR_10000, -800_000, 2_145_042_905]),
    Sample(name="time", topic="datetimes", type=_TIME, ordinary=[time(12, 34, 56, 789_000), time(0, 0), time(0, 0, 1)],
        odd=[_DAY, time(23, 59, 59, 999_999), time(0, 0, 0, 1)]),
    Sample(name="timetz", topic="datetimes", type=_type(Kind.TIMETZ, "time with time zone"),
        ordinary=["12:00:00+02", "00:00:00.000001-15:59:59"],
        odd=["24:00:00+00"]),
    *(
        Sample(name=name, topic="datetimes", type=type_,
            ordinary=[datetime(2020, 1, 31, 12, 34, 56, 789_000, zone), datetime(1970, 1, 1, tzinfo=zone),
                datetime(1969, 12, 31, 23, 59, 59, 999_999, zone), datetime(2024, 2, 29, tzinfo=zone)],
            odd=[_INF_64, -_INF_64 - 1, _INF_64 - 1, datetime(9999, 12, 31, 23, 59, 59, 999_999, zone),
                datetime(1, 1, 1, tzinfo=zone), datetime(1883, 11, 18, 12, 3, 58, tzinfo=zone), _YEAR_100000_US,
                -99_999_999_999_999_999])
        for name, type_, zone in (("timestamp", _STAMP, None), ("timestamptz", _STAMPTZ, UTC))
    ),
    Sample(name="interval", topic="datetimes", type=_type(Kind.INTERVAL, "interval"),
        ordinary=["1 day", "1 year 2 mons 3 days 04:05:06.789"], odd=["-178000000 years", "00:00:00"]),
    Sample(name="bool", topic="plain", type=_type(Kind.BOOL, "boolean"), ordinary=[True, False]),
    Sample(name="uuid", topic="plain", type=_UUID, ordinary=[_A_UUID],
        odd=["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"]),
    Sample(name="mood", topic="plain", type=_type(Kind.ENUM, "mood", labels=("sad", "ok")), ordinary=["sad", "ok"]),
    Sample(name="odd_enum", topic="plain", type=_type(Kind.ENUM, "odd", labels=("light green", "é", "", '"')),
        ordinary=["light green"], odd=["é", "", '"']),
    Sample(name="json", topic="nested", type=_JSON,
        ordinary=['{"a": 1, "b": [true, null, "x"]}', "[]", "{}", '"text"', "12", "false"],
        odd=['{"": {"": []}}', f"[{'9' * 40}, 1.50, -0.0, 1e400, 12345678901234567890.12345678901234567890]",
            '"\\u0000\\ud83d\\ude00 \\n \\" é"', f"{'[' * 100}{']' * 100}",
            '{"after": null, "__crdb__": {"resolved": "1.0000000000"}}', ' {"a" :\n1 } ',
            f'{{"long": "{"x" * 70_000}", "last": 1}}']),
    Sample(name="ints", topic="nested", type=_array(_INT8), ordinary=["[1, 2, 3]", "[]"],
        odd=["[null]", f"[{2**63 - 1}, {-(2**63)}]", "[[1, 2], [3, null]]", str([*range(12_000)])]),
    Sample(name="texts", topic="nested", type=_array(_TEXT), ordinary=['["a", "b"]', "[]"],
        odd=['["", null, "null", "\\"", "\\\\", "\\n", "é, 😀", "a, b", "[", "]"]', '[["a"], ["b"]]']),
    Sample(name="bools", topic="nested", type=_array(_type(Kind.BOOL, "boolean")), ordinary=["[true, false]"],
        odd=["[null, true]"]),
    Sample(name="floats", topic="nested", type=_array(_DOUBLE), ordinary=["[1.5, -0.25]"],
        odd=['["NaN", "Infinity", "-Infinity"]', "[1e+300, 5e-324, 0.1]"]),
    Sample(name="float4s", topic="nested", type=_array(_REAL), ordinary=["[1.5, -0.25]"], odd=["[0.1, 16777216]"]),
    Sample(name="decimals", topic="nested", type=_array(_NUMERIC), ordinary=["[22.30, 1]"],
        odd=['["NaN", null]', f"[{'9' * 90}.5]"]),
    Sample(name="prices", topic="nested", type=_array(_PRICE), ordinary=["[22.30, 1.00]"],
        odd=['["NaN", null, -0.01]']),
    Sample(name="blobs", topic="nested", type=_array(_BYTES), ordinary=['["\\\\x6162"]'],
        odd=['["\\\\x", null, "\\\\x00ff"]']),
    Sample(name="dates", topic="nested", type=_array(_DATE), ordinary=['["2020-01-31"]'],
        odd=['["infinity", null]', '["-0043-03-15", "12020-01-01"]']),
    Sample(name="times", topic="nested", type=_array(_TIME), ordinary=['["12:34:56.789"]'], odd=['["24:00:00", null]']),
    Sample(name="stamps", topic="nested", type=_array(_STAMP), ordinary=['["2020-01-31T12:34:56.789"]'],
        odd=['["-infinity", null]', '["0001-01-01T00:00:00"]']),
    Sample(name="stamptzs", topic="nested", type=_array(_STAMPTZ), ordinary=['["2020-01-31T12:34:56.789Z"]'],
        odd=['["infinity"]', '["12020-01-01T00:00:00Z"]']),
    Sample(name="uuids", topic="nested", type=_array(_UUID), ordinary=[f'["{_A_UUID}"]'], odd=["[null]"]),
    Sample(name="jsons", topic="nested", type=_array(_JSON), ordinary=['[{"a": [1]}, "x"]'],
        odd=['[[1, [2]], {"a": 1.50}, "]"]', "[null, 1]"]),
    Sample(name="pair", topic="nested", type=_type(Kind.COMPOSITE, "pair"), ordinary=['{"left": 1, "right": "r"}'],
        odd=['{"left": null, "a b": {"x": [1, 2.50]}}']),
)  # fmt: skip
