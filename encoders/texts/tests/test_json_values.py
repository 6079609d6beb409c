from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest
from cdc_column_texts import NoRepresentationError, array_text, joined, json_pieces
from cdc_encoder_json.scanning import plain

from cdc_core import ColumnType, Kind

INT64, INT32 = 2**63, 2**31


def type_of(kind: Kind, bits: int | None = None) -> ColumnType:
    return ColumnType(kind=kind, source=str(kind), bits=bits)


def texts(type_: ColumnType, values: list[Any], *, null_as_object: bool = False) -> list[str]:
    pieces = json_pieces(pa.array(values, type_.arrow), type_, null_as_object=null_as_object)
    found: list[str] = joined(pieces, len(values)).to_list()
    return found


def us(days: int, seconds: int = 0, micros: int = 0) -> int:
    return (days * 86400 + seconds) * 1_000_000 + micros


CASES: list[tuple[ColumnType, Any, str]] = [
    (type_of(Kind.BOOL), True, "true"),
    (type_of(Kind.BOOL), False, "false"),
    (type_of(Kind.INT, 16), -(2**15), "-32768"),
    (type_of(Kind.INT, 32), INT32 - 1, "2147483647"),
    (type_of(Kind.INT, 64), INT64 - 1, "9223372036854775807"),
    (type_of(Kind.INT, 64), -INT64, "-9223372036854775808"),
    (type_of(Kind.FLOAT, 64), 1.0, "1"),
    (type_of(Kind.FLOAT, 64), -0.0, "-0"),
    (type_of(Kind.FLOAT, 64), 0.1, "0.1"),
    (type_of(Kind.FLOAT, 64), 100.0, "100"),
    (type_of(Kind.FLOAT, 64), 123456789012345.67, "123456789012345.67"),
    (type_of(Kind.FLOAT, 64), 1e15, "1000000000000000"),
    (type_of(Kind.FLOAT, 64), 1e16, "10000000000000000"),
    (type_of(Kind.FLOAT, 64), -123456789012345680000.0, "-123456789012345680000"),
    (type_of(Kind.FLOAT, 64), 1e21, "1e+21"),
    (type_of(Kind.FLOAT, 64), -1.7976931348623157e308, "-1.7976931348623157e+308"),
    (type_of(Kind.FLOAT, 64), 1e300, "1e+300"),
    (type_of(Kind.FLOAT, 64), 1e-5, "0.00001"),
    (type_of(Kind.FLOAT, 64), -1.25e-6, "-0.00000125"),
    (type_of(Kind.FLOAT, 64), 1.5e-7, "1.5e-7"),
    (type_of(Kind.FLOAT, 64), 5e-324, "5e-324"),
    (type_of(Kind.FLOAT, 64), float("nan"), '"NaN"'),
    (type_of(Kind.FLOAT, 64), float("inf"), '"Infinity"'),
    (type_of(Kind.FLOAT, 64), float("-inf"), '"-Infinity"'),
    (type_of(Kind.FLOAT, 32), 0.1, "0.1"),
    (type_of(Kind.FLOAT, 32), 16777216.0, "16777216"),
    (type_of(Kind.FLOAT, 32), 1e15, "1000000000000000"),
    (type_of(Kind.FLOAT, 32), 1e-6, "0.000001"),
    (type_of(Kind.FLOAT, 32), 1e-7, "1e-7"),
    (type_of(Kind.FLOAT, 32), 3.4028235e38, "3.4028235e+38"),
    (type_of(Kind.FLOAT, 32), float("nan"), '"NaN"'),
    (type_of(Kind.FLOAT, 32), float("-inf"), '"-Infinity"'),
    (type_of(Kind.DECIMAL), "22.30", "22.30"),
    (type_of(Kind.DECIMAL), "-0.000", "-0.000"),
    (type_of(Kind.DECIMAL), "1E+1", "1E+1"),
    (type_of(Kind.DECIMAL), "9" * 5000 + "." + "1" * 5000, "9" * 5000 + "." + "1" * 5000),
    (type_of(Kind.DECIMAL), "NaN", '"NaN"'),
    (type_of(Kind.DECIMAL), "Infinity", '"Infinity"'),
    (type_of(Kind.DECIMAL), "-Infinity", '"-Infinity"'),
    (type_of(Kind.STRING), "", '""'),
    (type_of(Kind.STRING), "null", '"null"'),
    (type_of(Kind.STRING), "seattle", '"seattle"'),
    (type_of(Kind.STRING), 'a "b" \\ /', '"a \\"b\\" \\\\ /"'),
    (type_of(Kind.STRING), "\\n is not \n", '"\\\\n is not \\n"'),
    (type_of(Kind.STRING), "\n\r\t\b\f\x00\x1f\x7f", '"\\n\\r\\t\\u0008\\u000c\\u0000\\u001f\x7f"'),
    (type_of(Kind.STRING), "é 漢 😀 \u2028\u2029 </script>&", '"é 漢 😀 \u2028\u2029 </script>&"'),
    (type_of(Kind.BYTES), b"", '"\\\\x"'),
    (type_of(Kind.BYTES), b"ab\x00\xff", '"\\\\x616200ff"'),
    (type_of(Kind.UUID), "09265ab7-5f3a-40cb-a543-d37c8c893793", '"09265ab7-5f3a-40cb-a543-d37c8c893793"'),
    (type_of(Kind.DATE), 0, '"1970-01-01"'),
    (type_of(Kind.DATE), 18292, '"2020-01-31"'),
    (type_of(Kind.DATE), -719162, '"0001-01-01"'),
    (type_of(Kind.DATE), -719163, '"0000-12-31"'),
    (type_of(Kind.DATE), -719529, '"-0001-12-31"'),
    (type_of(Kind.DATE), -2440588, '"-4713-11-24"'),
    (type_of(Kind.DATE), 2932896, '"9999-12-31"'),
    (type_of(Kind.DATE), 2932897, '"10000-01-01"'),
    (type_of(Kind.DATE), 2145042905, '"5874897-12-31"'),
    (type_of(Kind.DATE), INT32 - 1, '"infinity"'),
    (type_of(Kind.DATE), -INT32, '"-infinity"'),
    (type_of(Kind.TIME), 0, '"00:00:00"'),
    (type_of(Kind.TIME), us(0, 45296, 789_000), '"12:34:56.789"'),
    (type_of(Kind.TIME), us(0, 86399, 999_999), '"23:59:59.999999"'),
    (type_of(Kind.TIME), us(0, 1, 1), '"00:00:01.000001"'),
    (type_of(Kind.TIME), us(1), '"24:00:00"'),
    (type_of(Kind.TIMETZ), "12:34:56+00", '"12:34:56+00"'),
    (type_of(Kind.TIMESTAMP), us(0), '"1970-01-01T00:00:00"'),
    (type_of(Kind.TIMESTAMP), us(18292, 45296, 500_000), '"2020-01-31T12:34:56.5"'),
    (type_of(Kind.TIMESTAMP), us(18292, 45296, 10), '"2020-01-31T12:34:56.00001"'),
    (type_of(Kind.TIMESTAMP), us(-1, 86399, 999_999), '"1969-12-31T23:59:59.999999"'),
    (type_of(Kind.TIMESTAMP), us(-719529), '"-0001-12-31T00:00:00"'),
    (type_of(Kind.TIMESTAMP), us(2932897, 1), '"10000-01-01T00:00:01"'),
    (type_of(Kind.TIMESTAMP), INT64 - 1, '"infinity"'),
    (type_of(Kind.TIMESTAMP), -INT64, '"-infinity"'),
    (type_of(Kind.TIMESTAMPTZ), us(20217, 76829, 203_923), '"2025-05-09T21:20:29.203923Z"'),
    (type_of(Kind.TIMESTAMPTZ), us(20217, 76829), '"2025-05-09T21:20:29Z"'),
    (type_of(Kind.TIMESTAMPTZ), INT64 - 1, '"infinity"'),
    (type_of(Kind.TIMESTAMPTZ), -INT64, '"-infinity"'),
    (type_of(Kind.INTERVAL), "1 day 02:03:04", '"1 day 02:03:04"'),
    (type_of(Kind.ENUM), 'so "so"', '"so \\"so\\""'),
    (type_of(Kind.JSON), '{"b": 1,  "a": [true, null]}', '{"b": 1,  "a": [true, null]}'),
    (type_of(Kind.JSON), '{\r\n\t"a": "x\\ny"\n}', '{  \t"a": "x\\ny" }'),
    (type_of(Kind.JSON), "null", "null"),
    (type_of(Kind.JSON), '"null"', '"null"'),
    (type_of(Kind.ARRAY), '[1, null, ["a\\nb"]]', '[1, null, ["a\\nb"]]'),
    (type_of(Kind.COMPOSITE), '{"f1": 1, "f2": null}', '{"f1": 1, "f2": null}'),
]


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [pytest.param(*case, id=f"{case[0].kind}-{number}") for number, case in enumerate(CASES)],
)
def test_a_value_is_written_exactly(type_: ColumnType, value: Any, text: str) -> None:
    assert texts(type_, [value]) == [text]


@pytest.mark.parametrize("kind", list(Kind))
def test_one_column_holds_all_values_of_a_kind(kind: Kind) -> None:
    """With nulls between them, in either direction, and as a slice of a longer column."""
    types = {type_ for type_, _, _ in CASES if type_.kind is kind}
    assert types
    for type_ in types:
        cases = [(value, text) for other, value, text in CASES if other == type_]
        values = [value for value, _ in cases for value in (value, None)]
        wanted = [text for _, text in cases for text in (text, "null")]
        assert texts(type_, values) == wanted
        assert texts(type_, values[::-1]) == wanted[::-1]
        assert texts(type_, [value for value, _ in cases]) == [text for _, text in cases]
        array = pa.array(values, type_.arrow)
        for start in range(len(values) + 1):
            part = array.slice(start, 3)
            assert joined(json_pieces(part, type_), len(part)).to_list() == wanted[start : start + 3]


@pytest.mark.parametrize("kind", list(Kind))
def test_a_column_of_nulls_is_written(kind: Kind) -> None:
    assert texts(type_of(kind), [None, None]) == ["null", "null"]


def test_a_json_null_differs_from_an_sql_null_with_the_option() -> None:
    values = ["null", None, " \n null ", '"null"', "[null]", '{"a": null}']
    wanted = ['{"__crdb_json_null__": true}', "null", '{"__crdb_json_null__": true}', '"null"', "[null]", '{"a": null}']
    assert texts(type_of(Kind.JSON), values, null_as_object=True) == wanted
    assert texts(type_of(Kind.STRING), ["null"], null_as_object=True) == ['"null"']


def test_every_unicode_character_is_preserved() -> None:
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
    for step in (1, 4096):  # each alone, then in long runs
        values = ["".join(characters[start : start + step]) for start in range(0, len(characters), step)]
        written = joined(json_pieces(pa.array(values), type_of(Kind.STRING)), len(values))
        line = written.str.join(", ").item()
        assert not any(character in line for character in map(chr, range(32)))
        assert plain(f"[{line}]".encode()) == values


NO_NUMBERS = ["", "abc", "1 2", "01", "+1", ".5", "1.", "nan", "inf", "0x1", "1_000", "١", "1e", "--1", "1\n"]


@pytest.mark.parametrize("text", NO_NUMBERS)
@pytest.mark.parametrize("other", ["NaN", "2"])
def test_a_decimal_that_is_not_a_number_is_refused_and_named(text: str, other: str) -> None:
    with pytest.raises(NoRepresentationError) as caught:
        texts(type_of(Kind.DECIMAL), ["1.5", None, other, text, "2"])
    assert caught.value.row == 3
    assert repr(text) in str(caught.value)


def test_dates_far_apart_are_written_exactly() -> None:
    days = [-1_000_000, 0, None, 2_000_000, 0, INT32 - 1]
    wanted = ['"-0768-02-04"', '"1970-01-01"', "null", '"7445-10-25"', '"1970-01-01"', '"infinity"']
    assert texts(type_of(Kind.DATE), days) == wanted


@pytest.mark.parametrize("kind", [Kind.TIMESTAMP, Kind.TIMESTAMPTZ])
def test_infinite_timestamps_of_an_array_are_written_as_such(kind: Kind) -> None:
    assert array_text([INT64 - 1, None, -INT64], type_of(kind)) == '["infinity", null, "-infinity"]'
