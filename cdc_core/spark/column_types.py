"""Types of DataFrame columns whose types differ between the versions of a table, casts to these, and JSON texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.rows import fields_by_name
from cdc_core.schema import ColumnType, Kind, TableSchema

_MAX_DIGITS = 38
_EXACT_BITS = {32: 24, 64: 53}
"""By the bits of a float: integers with up to this many bits are exact in it."""
_DIGITS = {16: 5, 32: 10, 64: 19}
"""By the bits of an integer: the digits of its largest value."""
_DAY_US = 86_400_000_000
_YEARS_400 = 146_097
"""Days in 400 years, after which the calendar repeats."""
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The years 1 to 9999. After 32767 Arrow writes wrong years."""
_FLOAT_TEXTS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Arrow's texts, and the texts of decimals for the same values."""


def type_of(type_: ColumnType) -> pa.DataType:
    """Return the type of a column that has *type_* in all versions of its table."""
    digits = type_.decimal_digits
    if digits is not None and digits[0] <= _MAX_DIGITS:
        return pa.decimal128(*digits)
    return pa.string() if type_.kind is Kind.TIME else type_.arrow  # by default Spark has no type for times of day


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that can hold every value of both types, or text when no other can."""
    if one == other:
        return one
    types = pa.types
    if types.is_floating(one) or types.is_decimal(one):
        one, other = other, one
    if types.is_integer(one) and types.is_integer(other):
        return max(one, other, key=lambda type_: type_.bit_width)
    if types.is_floating(one) and types.is_floating(other):
        return pa.float64()
    if types.is_integer(one) and types.is_floating(other):
        fits = (bits for bits in (other.bit_width, 64) if one.bit_width <= _EXACT_BITS[bits])
        return {32: pa.float32(), 64: pa.float64(), None: pa.string()}[next(fits, None)]
    if (types.is_integer(one) or types.is_decimal(one)) and types.is_decimal(other):
        scales = [0 if types.is_integer(each) else each.scale for each in (one, other)]
        digits = [_DIGITS[one.bit_width] if types.is_integer(one) else one.precision - one.scale]
        precision = max(*digits, other.precision - other.scale) + max(scales)
        return pa.decimal128(precision, max(scales)) if precision <= _MAX_DIGITS else pa.string()
    return pa.string()


def cast(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return *values* as *type_*, which is text or a `common_type` of their type. No value changes.

    As text, bytes are `\\x` and hexadecimal digits. Dates and timestamps have the form of ISO 8601, with a space before
    the time, or are `infinity` or `-infinity`. Special floats are `NaN`, `Infinity` and `-Infinity`. Raises:
    pa.ArrowInvalid for a text that is not a decimal, such as NaN.
    """
    if not pa.types.is_string(type_) or pa.types.is_string(values.type):
        return values.cast(type_)
    if pa.types.is_binary(values.type):
        digits = [None if value is None else f"\\x{value.hex()}" for value in values.to_pylist()]
        return pa.array(digits, type_)
    if pa.types.is_time(values.type):
        whole_day = pc.equal(values.cast(pa.int64()), _DAY_US)  # Arrow has no text for this value
        return pc.if_else(whole_day, "24:00:00.000000", values.cast(type_))
    if pa.types.is_date(values.type) or pa.types.is_timestamp(values.type):
        return _datetime_texts(values)
    texts = values.cast(type_)
    if pa.types.is_floating(values.type):
        for arrow, text in _FLOAT_TEXTS.items():
            texts = pc.if_else(pc.equal(texts, arrow), text, texts)
    return texts


def short_times(texts: pa.StringArray) -> pa.StringArray:
    """Return texts of times or timestamps, as `cast` gives them, without zeros at the end of the fraction."""
    return pc.replace_substring_regex(texts, r"\.?0+(Z?)$", r"\1")


def _datetime_texts(values: pa.Array) -> pa.StringArray:
    """Return dates or timestamps as text, including those with years that Arrow cannot write."""
    number_type, unit = (pa.int32(), 1) if pa.types.is_date(values.type) else (pa.int64(), _DAY_US)
    numbers = values.cast(number_type)
    known = pc.and_(pc.greater_equal(numbers, _FIRST_DAY * unit), pc.less(numbers, (_LAST_DAY + 1) * unit))
    texts = pc.if_else(known, values, None).cast(pa.string())
    if pc.all(known).as_py() is not False:
        return texts
    return pa.array(
        [
            _text_by_cycle(number, values.type, unit=unit) if within is False else text
            for number, within, text in zip(numbers.to_pylist(), known.to_pylist(), texts.to_pylist(), strict=True)
        ],
        pa.string(),
    )


def _text_by_cycle(number: int, type_: pa.DataType, *, unit: int) -> str:
    """Return the text of a date or timestamp, made from the same day of the calendar between 1970 and 2370."""
    most = 2 ** (type_.bit_width - 1) - 1
    if number in (most, -most - 1):
        return "infinity" if number > 0 else "-infinity"
    days, rest = divmod(number, unit)
    cycles, day = divmod(days, _YEARS_400)
    near = pa.array([day * unit + rest]).cast(pa.int32() if unit == 1 else pa.int64()).cast(type_)
    year, dash, others = near.cast(pa.string())[0].as_py().partition("-")
    far = int(year) + 400 * cycles
    return f"{far:0{5 if far < 0 else 4}d}{dash}{others}"


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_RARE_ESCAPES = {chr(code): f"\\u{code:04x}" for code in range(0x20) if chr(code) not in _ESCAPES}
_RARE = r"[\x00-\x08\x0b\x0c\x0e-\x1f]"


def row_texts(rows: pa.StructArray, schema: TableSchema) -> pa.StringArray:
    """Return *rows*, with the columns of *schema*, as JSON objects on one line each; null where a row is null."""
    values = fields_by_name(rows)
    pieces: list[str | pa.Array] = []
    for column in sorted(schema.columns, key=lambda column: column.name):
        texts = _TEXTS.get(column.type.kind, _quoted)(values[column.name])
        pieces += [f"{', ' if pieces else '{'}{json.dumps(column.name, ensure_ascii=False)}: ", texts]
    texts = pc.binary_join_element_wise(*pieces, "}", "", null_handling="replace", null_replacement="null")
    return pc.if_else(rows.is_valid(), texts, pa.scalar(None, pa.string()))


def _plain(values: pa.Array) -> pa.StringArray:
    return values.cast(pa.string())


def _numbers(values: pa.Array) -> pa.StringArray:
    """Return decimals or floats, NaN and infinities in quotes."""
    return pc.replace_substring_regex(cast(values, pa.string()), r"^(NaN|-?Infinity)$", r'"\1"')


def _floats(values: pa.Array) -> pa.StringArray:
    """Return floats as JavaScript writes numbers: with the fewest digits, and exponents from 21 digits on."""
    numbers = np.asarray(values.fill_null(0))
    size = np.abs(numbers)
    odd = np.isfinite(numbers) & (size != 0) & ((size < 1e-4) | (size >= 1e10))
    texts = pc.replace_substring_regex(_numbers(values), r"\.0$", "")
    if not odd.any():
        return texts
    return pc.replace_with_mask(texts, pa.array(odd), pa.array([_script_number(each) for each in numbers[odd]]))


def _script_number(number: np.floating) -> str:
    digits, _, power = str(number).partition("e")
    if not power:
        return digits.removesuffix(".0")
    exponent = int(power)
    return f"{Decimal(str(number)):f}" if -6 <= exponent < 21 else f"{digits}e{exponent:+d}"


def _json(values: pa.Array) -> pa.StringArray:
    """Return JSON texts, in which a line end can only be between tokens."""
    return pc.replace_substring_regex(values, "[\n\r]", " ")


def _times(values: pa.Array) -> pa.StringArray:
    return _quoted(pc.replace_substring(short_times(cast(values, pa.string())), " ", "T"))


def _quoted(values: pa.Array) -> pa.StringArray:
    texts = cast(values, pa.string())
    rare = pc.any(pc.match_substring_regex(texts, _RARE)).as_py()
    for character, escape in (_ESCAPES | _RARE_ESCAPES if rare else _ESCAPES).items():
        texts = pc.replace_substring(texts, character, escape)
    return pc.binary_join_element_wise('"', texts, '"', "")


_TEXTS: dict[Kind, Callable[[pa.Array], pa.StringArray]] = {
    Kind.BOOL: _plain,
    Kind.INT: _plain,
    Kind.FLOAT: _floats,
    Kind.DECIMAL: _numbers,
    Kind.TIME: _times,
    Kind.TIMESTAMP: _times,
    Kind.TIMESTAMPTZ: _times,
    Kind.JSON: _json,
    Kind.ARRAY: _json,
    Kind.COMPOSITE: _json,
}
"""By kind; the others are texts."""
