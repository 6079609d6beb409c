"""Promises about values: what goes in comes out, or is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cdc_conformance.encoders.comparing import differences, rows_of
from cdc_conformance.encoders.rig import EncoderRig, Form, body_of
from cdc_conformance.encoders.samples import Sample
from cdc_conformance.promises import requires
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_core import ColumnType, ConfigError, EncodeError, Kind, Op, RowBatch

__all__ = ["Values"]

_COLUMN, _KEY = "peculiar", 47_110_815


class Values:
    """Read back with the registration's decoder."""

    def test_numbers_come_back_exactly(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """Integers of 64 bits, floats to the last bit, NaN, infinities and long decimals are what they were.

        A number that the format cannot hold raises EncodeError; one that is rounded loses somebody's money in silence.
        When this fails, look for a double on the way of an integer or decimal, and for a scale that was cut.
        """
        _prove(rig, samples, "numbers", topic)

    def test_texts_come_back_to_the_last_character(
        self, rig: EncoderRig, samples: Sequence[Sample], topic: str
    ) -> None:
        """Texts keep quotes, backslashes, line ends, control characters, blanks at both ends and all of Unicode.

        Nothing is normalised, trimmed or replaced, and an empty text is no null. When this fails, look at escaping.
        """
        _prove(rig, samples, "texts", topic)

    def test_bytes_come_back(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """Every byte of a bytes column is kept, zeros and line ends included; no bytes is no null."""
        _prove(rig, samples, "bytes", topic)

    def test_moments_come_back_exactly(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """Dates and times keep microseconds and zones, also before 1970, in years beyond 9999 and before 1.

        Infinities and 24:00:00 come back or raise EncodeError; 24:00:00 is not 00:00:00. When this fails, look for
        Python's own datetime or a library's 32 or 64 bits on the way.
        """
        _prove(rig, samples, "moments", topic)

    def test_plain_values_come_back(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """Booleans, UUIDs and the labels of enums, whatever characters these have, are what they were."""
        _prove(rig, samples, "plain", topic)

    def test_nested_values_come_back(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """JSON, arrays and composites have the same tokens and the same numbers, digit for digit; blanks may differ.

        An array that the format cannot hold, as one of several dimensions, raises EncodeError. When this fails, look
        for a JSON library that makes doubles of numbers.
        """
        _prove(rig, samples, "nested", topic)

    def test_nulls_come_back_as_nulls(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """A null of any column is a null, beside values and in a batch of nulls alone; not zero, empty, or "null"."""
        for form in rig.some(rows=True):
            accepted = rig.accepted(form, samples, topic)
            schema = table("nulls", {"id": INT8} | {sample.name: sample.type for sample in accepted})
            full = {sample.name: sample.ordinary[0] for sample in accepted}
            variants: list[list[dict[str, Any]]] = [[{}, full, {}], [{}]]
            for several in variants:
                batch = rows(schema, [Change({"id": n, **values}) for n, values in enumerate(several)])
                _compare(rig, form, batch, topic)

    def test_a_value_that_cannot_be_written_is_refused_by_name(
        self, rig: EncoderRig, samples: Sequence[Sample], topic: str
    ) -> None:
        """What `encode` cannot write raises EncodeError that names table, column and key of the row.

        The changefeed stops there, and somebody must find that row. Before it in the batch stand deletes, which have no
        values, and the batch may be a slice: when the wrong key is named, look at how rows are counted. The value may
        stand in the key too.
        """
        for output in rig.outputs:
            for form in rig.forms(rows=True, output=output)[:1]:
                for sample in rig.accepted(form, samples, topic):
                    schema = _schema(sample.name, sample.type)
                    name = f"{topic}_{sample.name}"
                    for value in _refused(rig, form, schema, sample.odd, name):
                        for where in (schema, _schema(sample.name, sample.type, key=True)):
                            _must_name(rig, form, where, (sample.ordinary[0], value), name)

    @requires("json_null", "the format must have two ways to write nothing")
    def test_a_json_null_is_no_sql_null(self, rig: EncoderRig, topic: str) -> None:
        """The JSON value null in a json column is the text `null`; an SQL NULL is None."""
        schema = _schema("j", ColumnType(kind=Kind.JSON, source="jsonb"))
        for form in rig.some(rows=True):
            if rig.refusal(form, schema, f"{topic}_j") is None:
                _compare(rig, form, _batch(schema, ["null", None, '"null"', "null"]), f"{topic}_j")

    def test_columns_keep_their_names(self, rig: EncoderRig, topic: str) -> None:
        """Columns are found under their own names, whatever characters these have, and whatever the format's own words.

        Names such as `größe (cm)`, `after`, `key` and `resolved` are ordinary to a database. `check` may refuse one,
        naming table and column.
        """
        names = ["größe (cm)", 'quo"te', "back\\slash", "new\nline", "$1", "9", "a.b", "😀", "Z", "z", "class"]
        names += ["after", "before", "key", "updated", "mvcc_timestamp", "topic", "resolved", "__crdb__"]
        for form in rig.some(rows=True):
            accepted = [
                name for name in names if rig.refusal(form, table("odd", {"id": INT8, name: TEXT}), topic) is None
            ]
            if accepted:
                schema = table("odd", {"id": INT8} | dict.fromkeys(accepted, TEXT))
                batch = rows(schema, [Change({"id": 1, **{name: f"of {name}" for name in accepted}})])
                _compare(rig, form, batch, topic)


def _prove(rig: EncoderRig, samples: Sequence[Sample], about: str, topic: str) -> None:
    for form in rig.some(rows=True):
        for sample in rig.accepted(form, samples, topic):
            if sample.topic == about:
                schema = _schema(sample.name, sample.type)
                name = f"{topic}_{sample.name}"
                _compare(rig, form, _batch(schema, sample.ordinary), name)
                refused = _refused(rig, form, schema, sample.odd, name)
                written = [value for value in sample.odd if not any(value is one for one in refused)]
                if written:
                    _compare(rig, form, _batch(schema, written), name)


def _refused(rig: EncoderRig, form: Form, schema: Any, values: Sequence[Any], topic: str) -> list[Any]:
    def is_refused(some: Sequence[Any]) -> bool:
        try:
            _encode(rig, form, _batch(schema, some), topic)
        except EncodeError:
            return True
        return False

    return [value for value in values if is_refused([value])] if values and is_refused(values) else []


def _must_name(rig: EncoderRig, form: Form, schema: Any, values: tuple[Any, Any], topic: str) -> None:
    good, value = values
    changes = [
        Change({"id": 1, _COLUMN: good}, op=Op.DELETE),
        Change({"id": 2, _COLUMN: good}, op=Op.DELETE),
        Change({"id": _KEY, _COLUMN: value}),
        Change({"id": 4, _COLUMN: good}),
    ]
    for batch in (rows(schema, changes), rows(schema, changes).slice(1)):
        with pytest.raises(EncodeError) as refused:
            _encode(rig, form, batch, topic)
        said = str(refused.value)
        for what, word in (("table", str(schema.name)), ("column", _COLUMN), ("key", str(_KEY))):
            assert word in said, (
                f"{form}: an EncodeError names table, column and key of the value that cannot be written; this one "
                f"lacks the {what} '{word}': {said}"
            )


def _encode(rig: EncoderRig, form: Form, batch: RowBatch, topic: str) -> None:
    encoder = rig.encoder(form)
    if form.output == "files":
        body_of(encoder, [batch], topic)
    else:
        encoder.encode(batch, topic=topic)


def _compare(rig: EncoderRig, form: Form, batch: RowBatch, topic: str) -> None:
    said = differences(batch.schema, form, rows_of(batch, topic, form), rig.read(form, [batch], topic))
    assert not said, (
        f"{said}. A value comes back exactly, or encode raises EncodeError, or check refuses the column with "
        f"{ConfigError.__name__}; it is never changed"
    )


def _schema(name: str, type_: ColumnType, *, key: bool = False) -> Any:
    primary_key = ("id", _COLUMN) if key else ("id",)
    return table(f"t_{name}", {"id": INT8, _COLUMN: type_}, primary_key=primary_key)


def _batch(schema: Any, values: Sequence[Any]) -> RowBatch:
    return rows(schema, [Change({"id": number, _COLUMN: value}) for number, value in enumerate(values)])
