"""The encoder compared with a simple one that writes one value at a time in plain Python."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.json_schema import key_schema, resolved_schema, value_schema
from cdc_encoder_json.options import JsonOptions
from cdc_encoder_json.scanning import plain
from cdc_testing.table_rows import Row, make_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from cdc_core import ColumnType, EncoderContext, Envelope, Kind, Op, RowBatch, Timestamp

pytestmark = pytest.mark.slow

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_DAY = 86_400_000_000
_METADATA = ("updated", "mvcc_timestamp", "key_in_value", "topic_in_value")
_PLACES = {"wrapped": (*_METADATA, "diff"), "bare": _METADATA, "row": (), "key_only": ()}
_CYCLE_DAYS = 146_097
"""400 years, after which the calendar repeats itself."""


def string(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(c, f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


def number(value: float, shortest: str) -> str:
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    exact = Decimal(shortest).normalize()
    sign, digits, _ = exact.as_tuple()
    if value == 0 or -6 <= exact.adjusted() < 21:
        return f"{exact:f}"
    text = "".join(map(str, digits))
    return f"{'-' * sign}{text[0]}{'.' * (len(text) > 1)}{text[1:]}e{exact.adjusted():+d}"


def date(days: int) -> str:
    cycles = (days + 719_162) // _CYCLE_DAYS
    day = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=days - cycles * _CYCLE_DAYS)
    year = day.year + 400 * cycles
    return f"{'-' * (year < 0)}{abs(year):04d}-{day.month:02d}-{day.day:02d}"


def clock(us: int) -> str:
    seconds, fraction = divmod(us, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return (text + f".{fraction:06d}".rstrip("0")) if fraction else text


def timestamp(us: int, zone: str) -> str:
    if us in (-(2**63), 2**63 - 1):
        return '"infinity"' if us > 0 else '"-infinity"'
    return f'"{date(us // _DAY)}T{clock(us % _DAY)}{zone}"'


def day(days: int) -> str:
    if days in (-(2**31), 2**31 - 1):
        return '"infinity"' if days > 0 else '"-infinity"'
    return f'"{date(days)}"'


def decimal(text: str) -> str:
    return text if Decimal(text).is_finite() else f'"{text}"'


def one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\r", " ")


@dataclass(frozen=True)
class Sample:
    """A type with values to try and how each is written."""

    type: ColumnType
    values: st.SearchStrategy[Any]
    write: Callable[[Any], str]


def _type(kind: Kind, bits: int | None = None) -> ColumnType:
    return ColumnType(kind=kind, source=str(kind), bits=bits)


def _ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_text = st.text(st.characters(codec="utf-8"), max_size=12) | st.text('"\\\n\r\t\b\f\x00\x1f\x7f\u2028 é😀n', max_size=8)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | _text, lambda inner: st.lists(inner) | st.dictionaries(_text, inner)
).map(lambda value: json.dumps(value, ensure_ascii=False, indent=len(str(value)) % 3 or None))
_decimals = st.decimals(allow_nan=False, allow_infinity=False).map(lambda value: f"{value:f}") | st.sampled_from(
    ["NaN", "Infinity", "-Infinity", "1E+1", "-0.00"]
)
_timestamps = _ints(64) | st.integers(0, 2**51) | st.integers(0, 2**31).map(lambda s: s * 10**6) | st.integers(-3, 3)

SAMPLES = [
    Sample(_type(Kind.BOOL), st.booleans(), lambda value: "true" if value else "false"),
    *(Sample(_type(Kind.INT, bits), _ints(bits), str) for bits in (16, 32, 64)),
    Sample(_type(Kind.FLOAT, 64), st.floats(), lambda value: number(value, repr(value))),
    Sample(_type(Kind.FLOAT, 32), st.floats(width=32), lambda value: number(value, str(np.float32(value)))),
    Sample(_type(Kind.DECIMAL), _decimals, decimal),
    *(Sample(_type(kind), _text, string) for kind in (Kind.STRING, Kind.ENUM, Kind.INTERVAL, Kind.TIMETZ)),
    Sample(_type(Kind.BYTES), st.binary(max_size=20), lambda value: f'"\\\\x{value.hex()}"'),
    Sample(_type(Kind.UUID), st.uuids().map(str), string),
    Sample(_type(Kind.DATE), _ints(32) | st.integers(-1_000_000, 4_000_000) | st.integers(19_000, 19_050), day),
    Sample(_type(Kind.TIME), st.integers(0, _DAY) | st.just(_DAY), lambda value: f'"{clock(value)}"'),
    Sample(_type(Kind.TIMESTAMP), _timestamps, lambda value: timestamp(value, "")),
    Sample(_type(Kind.TIMESTAMPTZ), _timestamps, lambda value: timestamp(value, "Z")),
    Sample(_type(Kind.JSON), _json, one_line),
    Sample(_type(Kind.ARRAY), st.lists(st.none() | st.integers()).map(json.dumps), one_line),
    Sample(_type(Kind.COMPOSITE), st.dictionaries(_text, st.integers()).map(json.dumps), one_line),
]


@dataclass(frozen=True)
class Case:
    columns: dict[str, Sample]
    primary_key: list[str]
    rows: list[dict[str, Any]]
    envelope: Envelope

    def reference(self, row: Mapping[str, Any]) -> tuple[str, str | None]:
        """Return key and value of the message of *row*."""
        key = "[" + ", ".join(self.columns[name].write(row["key"][name]) for name in self.primary_key) + "]"
        return key, self._value(row, self._metadata(row, key))

    def _value(self, row: Mapping[str, Any], metadata: dict[str, str]) -> str | None:
        envelope, after = self.envelope.name, row["after"]
        if envelope == "wrapped":
            before = {"before": self._object(row["before"])} if self.envelope.diff else {}
            return self._joined({"after": self._object(after)} | before | metadata)
        if envelope == "bare":
            fields = self._fields(dict.fromkeys(self.columns) | row["key"] if after is None else after)
            return self._joined(fields | ({"__crdb__": self._joined(metadata)} if metadata else {}))
        if after is None:
            return None
        return self._object(after) if envelope == "row" else ""

    def _metadata(self, row: Mapping[str, Any], key: str) -> dict[str, str]:
        fields = {}
        if self.envelope.key_in_value:
            fields["key"] = key
        if self.envelope.mvcc_timestamp:
            fields["mvcc_timestamp"] = f'"{row["mvcc"].wall}.{row["mvcc"].logical:010d}"'
        if self.envelope.topic_in_value:
            fields["topic"] = '"the \\"topic\\""'
        if self.envelope.updated:
            fields["updated"] = f'"{row["updated"].wall}.{row["updated"].logical:010d}"'
        return fields

    def _object(self, values: Mapping[str, Any] | None) -> str:
        return "null" if values is None else self._joined(self._fields(values))

    def _fields(self, values: Mapping[str, Any]) -> dict[str, str]:
        return {name: "null" if values[name] is None else self.columns[name].write(values[name]) for name in values}

    def _joined(self, fields: Mapping[str, str]) -> str:
        return "{" + ", ".join(f"{string(name)}: {fields[name]}" for name in sorted(fields)) + "}"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    columns = draw(st.dictionaries(_text, st.sampled_from(SAMPLES), min_size=1, max_size=6))
    primary_key = draw(st.lists(st.sampled_from(sorted(columns)), min_size=1, max_size=3, unique=True))
    envelope = draw(st.sampled_from(sorted(_PLACES)))
    options = Envelope(name=envelope, **{name: draw(st.booleans()) for name in _PLACES[envelope]})
    nullable = {name for name in columns if name not in primary_key and draw(st.booleans())}
    image = st.fixed_dictionaries(
        {name: st.none() | one.values if name in nullable else one.values for name, one in columns.items()}
    )
    stamps = st.builds(Timestamp, st.integers(0, 2**63 - 1), st.just(0) | st.integers(0, 2**31 - 1))
    changes = st.fixed_dictionaries(
        {
            "key": st.fixed_dictionaries({name: columns[name].values for name in primary_key}),
            "after": image if draw(st.booleans()) else st.none() | image,
            "before": st.none() | image,
            "updated": stamps if draw(st.booleans()) else st.just(draw(stamps)),
            "mvcc": stamps,
        }
    )
    rows = draw(st.lists(changes, max_size=8))
    for row in rows:
        if row["after"] is not None:
            row["key"] = {name: row["after"][name] for name in primary_key}
    return Case(columns, primary_key, rows, options)


def batch_of(case: Case) -> RowBatch:
    return make_rows(
        {name: sample.type for name, sample in case.columns.items()},
        [
            Row(
                op=Op.UPDATE if one["after"] else Op.DELETE,
                after=one["after"],
                before=one["before"],
                key=tuple(one["key"][name] for name in case.primary_key),
                updated=one["updated"],
                mvcc=one["mvcc"],
            )
            for one in case.rows
        ],
        primary_key=case.primary_key,
        diff=case.envelope.diff,
        mvcc=True,
    )


@settings(max_examples=300, deadline=None)
@given(case=cases(), data=st.data())
def test_messages_of_random_rows_are_those_of_the_reference(case: Case, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(case.rows)))
    length = data.draw(st.integers(0, len(case.rows)))
    rows = batch_of(case).slice(start, length)
    encoder = JsonEncoder(EncoderContext(changefeed="feed", envelope=case.envelope, options=JsonOptions()))
    batch = encoder.encode(rows, topic='the "topic"')
    wanted = [case.reference(one) for one in case.rows[start : start + length]]
    assert [key.decode() for key in batch.key.to_pylist()] == [key for key, _ in wanted]
    values = batch.value.to_pylist()
    assert [value if value is None else value.decode() for value in values] == [value for _, value in wanted]
    assert not any(b"\n" in value or b"\r" in value for value in values if value is not None)
    if None not in values:
        lines = encoder.open_body('the "topic"').write(rows)
        assert bytes(lines).decode() == "".join(f"{value}\n" for _, value in wanted)
    assert all(len(plain(key)) == len(case.primary_key) for key in batch.key.to_pylist())
    if case.envelope.name == "wrapped":
        decoded = [plain(value)["after"] for value in values]
        assert all(after is None or after.keys() == case.columns.keys() for after in decoded)


@settings(max_examples=200, deadline=None)
@given(case=cases())
def test_random_messages_match_their_json_schemas(case: Case) -> None:
    rows = batch_of(case)
    encoder = JsonEncoder(EncoderContext(changefeed="feed", envelope=case.envelope, options=JsonOptions()))
    batch = encoder.encode(rows, topic="topic")
    keys = Draft7Validator(json.loads(key_schema(rows.schema, case.envelope)))
    Draft7Validator.check_schema(keys.schema)
    for key in batch.key.to_pylist():
        keys.validate(json.loads(key))
    text = value_schema(rows.schema, case.envelope)
    values = Draft7Validator(json.loads(text or resolved_schema(case.envelope)))
    Draft7Validator.check_schema(values.schema)
    for value in batch.value.to_pylist():
        if value:
            values.validate(json.loads(value))
    values.validate(json.loads(encoder.encode_resolved("topic", Timestamp(1))))
