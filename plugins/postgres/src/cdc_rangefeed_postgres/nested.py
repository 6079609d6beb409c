"""Converts arrays and composites from PostgreSQL's text form to JSON text.

Elements have the form in which the JSON encoder writes columns of their types: numbers and booleans without quotes, NaN
and infinities in quotes, timestamps with a T, everything else as a string. Separators are `, ` and `: `. The fields of
a composite are sorted by name. Lower bounds of arrays (`[0:1]={…}`) are left out, because JSON has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import Kind
from cdc_rangefeed_postgres.datetimes import json_date, json_timestamp
from cdc_rangefeed_postgres.types import PgColumn, TypeCatalog, TypeInfo, column_type

ToJson = Callable[[str], str]
"""Converts the text form of one value to JSON text."""

_BOUNDS = r"^[^{]*="
_NUMBER_ARRAY = ((",", ", "), ("{", "["), ("}", "]"), ("NULL", "null"))
_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x20)} | {
    ord("\\"): "\\\\",
    ord('"'): '\\"',
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}
_LINE_ENDS = {ord("\n"): " ", ord("\r"): " "}
_UNESCAPE = re.compile(r"\\(.)", re.DOTALL)
_RECORD_UNESCAPE = re.compile(r'""|\\\\')
_RECORD_FIELD = re.compile(r'(?P<quoted>"(?:[^"\\]|""|\\\\)*")|(?P<plain>[^,")]*)', re.DOTALL)


def json_texts(texts: pa.StringArray, oid: int, catalog: TypeCatalog) -> pa.StringArray:
    """Return the JSON texts of a column of arrays or composites. Each distinct value is converted once."""
    info, _ = catalog.base(oid)
    if info.element and column_type(PgColumn("", info.element), catalog).kind is Kind.INT:
        texts = pc.replace_substring_regex(texts, _BOUNDS, "")
        for old, new in _NUMBER_ARRAY:
            texts = pc.replace_substring(texts, old, new)
        return texts
    convert = to_json(oid, catalog)
    unique = texts.dictionary_encode()
    known = [text.decode(errors="surrogateescape") for text in unique.dictionary.cast(pa.binary()).to_pylist()]
    converted = pa.array([convert(text).encode(errors="surrogateescape") for text in known], pa.binary())
    converted = converted.view(pa.string())
    return converted.take(unique.indices)


def to_json(oid: int, catalog: TypeCatalog) -> ToJson:
    """Return the function that converts the text form of a type to JSON text."""
    info, _ = catalog.base(oid)
    if info.element:
        return _array(to_json(info.element, catalog), info.delimiter)
    if info.typtype == "c":
        return _composite(info, [to_json(field, catalog) for _, field, _ in info.fields])
    type_ = column_type(PgColumn("", oid), catalog)
    if type_.kind is Kind.FLOAT:
        return _float32 if type_.bits == 32 else _float64
    return _SCALARS.get(type_.kind, quoted)


def quoted(text: str) -> str:
    """Return the JSON string of *text*."""
    return f'"{text.translate(_ESCAPES)}"'


def _array(element: ToJson, delimiter: str) -> ToJson:
    token = re.compile(
        rf'(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<brace>[{{}}])|{re.escape(delimiter)}'
        rf'|(?P<plain>[^{{}}"{re.escape(delimiter)}]+)',
        re.DOTALL,
    )

    def convert(text: str) -> str:
        pieces: list[str] = []
        for found in token.finditer(text, text.index("{")):
            kind, value = found.lastgroup, found.group()
            if kind == "quoted":
                pieces.append(element(_UNESCAPE.sub(r"\1", value[1:-1])))
            elif kind == "plain":
                pieces.append("null" if value == "NULL" else element(value))
            elif kind == "brace":
                pieces.append("[" if value == "{" else "]")
            else:
                pieces.append(", ")
        return "".join(pieces)

    return convert


def _composite(info: TypeInfo, fields: list[ToJson]) -> ToJson:
    """The log can have rows with the attributes that the type had when they were written."""
    order = sorted(range(len(fields)), key=lambda index: info.fields[index][0])
    parts = [(f"{quoted(info.fields[index][0])}: ", index, fields[index]) for index in order]
    places_of = cache(partial(places, info))

    def convert(text: str) -> str:
        values = _record(text)
        at = places_of(len(values))
        return "{" + ", ".join(name + _field(values, at[index], field) for name, index, field in parts) + "}"

    return convert


def _field(values: list[str | None], place: int | None, convert: ToJson) -> str:
    value = None if place is None else values[place]
    return "null" if value is None else convert(value)


def _record(text: str) -> list[str | None]:
    """Return the fields of the text form of a row: `(1,"a ""b"",,)`."""
    values: list[str | None] = []
    position = 1
    while position < len(text):
        found = _RECORD_FIELD.match(text, position)
        assert found is not None
        if found["quoted"] is not None:
            values.append(_RECORD_UNESCAPE.sub(lambda pair: pair.group()[0], found["quoted"][1:-1]))
        else:
            values.append(found["plain"] or None)
        position = found.end() + 1
    return values


def _number(text: str) -> str:
    return text if text[-1].isdigit() else f'"{text}"'


def _float64(text: str) -> str:
    return _javascript(repr(float(text)), text)


def _float32(text: str) -> str:
    shortest = str(np.float32(text))
    if float(shortest) != float(text):  # NumPy reads 64 bits first, and so may have rounded twice
        shortest = str(np.float32(pa.scalar(text).cast(pa.float32()).as_py()))
    return _javascript(shortest, text)


def _javascript(shortest: str, text: str) -> str:
    """Return a float in the form of JavaScript: with an exponent from 1e+21 on and below 1e-6."""
    digits, _, power = shortest.partition("e")
    if power:
        return f"{digits}e{int(power):+d}" if not -6 <= int(power) < 21 else f"{Decimal(shortest):f}"
    return digits.removesuffix(".0") if digits[-1].isdigit() else f'"{text}"'


_SCALARS: dict[Kind, ToJson] = {
    Kind.BOOL: lambda text: "true" if text == "t" else "false",
    Kind.INT: str,
    Kind.DECIMAL: _number,
    Kind.JSON: lambda text: text.translate(_LINE_ENDS),
    Kind.DATE: json_date,
    Kind.TIMESTAMP: json_timestamp,
    Kind.TIMESTAMPTZ: json_timestamp,
}


class UnknownAttributesError(Exception):
    """A row can be of two times at which the type had other attributes. The text is the type's name."""


def places(info: TypeInfo, count: int) -> tuple[int | None, ...]:
    """Return where each attribute of *info* is in a row of *count* values; None for one that the row does not have.

    The row was perhaps written when the type had others. Its text has the attributes that the type had then, in the
    order of their numbers, and does not say which. A new attribute gets a number that none had before.

    Raises: UnknownAttributesError when that depends on the order in which attributes were added and dropped.
    """
    now = info.numbers or tuple(range(1, len(info.fields) + 1))
    if not info.mixed and count == len(now):
        return tuple(range(count))
    found = set(_ways(now, info.attributes or max(now, default=0), *(info.before or ((), 0)), count))
    if not now:
        return ()
    if len(found) != 1 or None in found:
        raise UnknownAttributesError(info.name)
    return next(way for way in found if way is not None)


def _ways(
    now: Sequence[int], last: int, then: Sequence[int], last_then: int, count: int
) -> Iterator[tuple[int | None, ...] | None]:
    """Yield the places for each number of attributes that had been added by then; None where they are not certain."""
    for added in range(last_then, last + 1):
        had = [*then, *range(last_then + 1, added + 1)]
        doomed = [number for number in had if number not in now]
        dropped = len(had) - count
        if not 0 <= dropped <= len(doomed):
            continue
        way: list[int | None] = []
        for number in now:
            if number not in had:
                way.append(None)
                continue
            below = sum(other < number for other in doomed)
            least, most = max(0, dropped - (len(doomed) - below)), min(dropped, below)
            if least != most:
                yield None
                break
            way.append(had.index(number) - least)
        else:
            yield tuple(way)
