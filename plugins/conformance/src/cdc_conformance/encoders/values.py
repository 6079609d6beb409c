"""Promises about values: a decoder reads the same value, or the encoder refuses the row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cdc_conformance.encoders.comparison import differences, expected_rows
from cdc_conformance.encoders.form import DECODER, Form
from cdc_conformance.encoders.messages import written
from cdc_conformance.encoders.rig import EncoderRig
from cdc_conformance.encoders.samples import Sample
from cdc_conformance.promises import applies_if, does_not_apply, requires
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_core import ColumnType, EncodeError, Kind, Op, RowBatch

_COLUMN, _KEY = "peculiar", 47_110_815
_INT4 = ColumnType(kind=Kind.INT, source="integer", bits=32)
_FIRST: dict[str, ColumnType] = {"id": INT8, "a": _INT4, "gone": TEXT, "old": TEXT}
_CHANGES: dict[str, dict[str, ColumnType]] = {
    "added": {**_FIRST, "new": TEXT},
    "dropped": {"id": INT8, "a": _INT4, "old": TEXT},
    "widened": {**_FIRST, "a": INT8},
    "renamed": {"id": INT8, "a": _INT4, "gone": TEXT, "renamed": TEXT},
    "moved": {"old": TEXT, "gone": TEXT, "id": INT8, "a": _INT4},
}
_VALUES: dict[str, Any] = {"id": 7, "a": 5, "gone": "g", "old": "o", "new": "n", "renamed": "r"}


class Values:
    """The registered decoder reads the values."""

    @applies_if(DECODER)
    def test_numbers_come_back_exactly(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """64-bit integers, all bits of floats, NaN, infinities and long decimals come back exactly.

        A number that the format cannot represent raises EncodeError. It is never rounded. Look for integers and
        decimals that are converted to a double, and for a truncated scale.
        """
        _assert_unchanged(rig, samples, "numbers", topic)

    @applies_if(DECODER)
    def test_texts_come_back_exactly(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """Texts keep quotes, backslashes, line ends, control characters, blanks at both ends, and all of Unicode.

        Texts are not normalized, trimmed or replaced, and an empty text is not a null. Look at escaping.
        """
        _assert_unchanged(rig, samples, "texts", topic)

    @applies_if(DECODER)
    def test_bytes_come_back_exactly(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """Bytes keep zeros and line ends. An empty value is not a null."""
        _assert_unchanged(rig, samples, "bytes", topic)

    @applies_if(DECODER)
    def test_dates_and_times_come_back_exactly(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """Dates and times keep microseconds and zones, also before 1970, after the year 9999 and before the year 1.

        Infinities and 24:00:00 come back or raise EncodeError. 24:00:00 is not 00:00:00. Look for conversions to
        Python's `datetime`, and for a library with too few bits.
        """
        _assert_unchanged(rig, samples, "datetimes", topic)

    @applies_if(DECODER)
    def test_plain_values_come_back(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """Booleans, UUIDs and enum labels of any characters come back."""
        _assert_unchanged(rig, samples, "plain", topic)

    @applies_if(DECODER)
    def test_nested_values_come_back(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """JSON, arrays and composites keep their tokens and all digits of numbers. Blanks may differ.

        An array that the format cannot represent, such as one of several dimensions, raises EncodeError. Look for a
        JSON library that converts numbers to doubles.
        """
        _assert_unchanged(rig, samples, "nested", topic)

    @applies_if(DECODER)
    def test_nulls_come_back_as_nulls(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """A null of any column comes back as a null, among values and in a batch of nulls: not as 0, "" or "null"."""
        for form in rig.some(rows=True):
            accepted = rig.accepted(form, samples, topic)
            schema = table("nulls", {"id": INT8} | {sample.name: sample.type for sample in accepted})
            full = {sample.name: sample.ordinary[0] for sample in accepted}
            variants: list[list[dict[str, Any]]] = [[{}, full, {}], [{}]]
            for several in variants:
                batch = rows(schema, [Change({"id": n, **values}) for n, values in enumerate(several)])
                _compare(rig, form, batch, topic)

    @applies_if(DECODER)
    def test_an_unknown_value_is_not_null(self, rig: EncoderRig, topic: str) -> None:
        """A message lacks the columns in `unavailable` of its row, and names them; or `encode` raises EncodeError.

        The source does not know these values, and a null in their place would be wrong. Use `unavailable_sets` or
        `refuse_unavailable`. Look at rows without such columns in the same batch, and at slices.
        """
        schema = table("orders", {"id": INT8, "note": TEXT, "size": INT8})
        changes = [
            Change({"id": 1, "note": "a", "size": 1}),
            Change({"id": _KEY, "size": 2}, op=Op.UPDATE, unavailable=("note",)),
            Change({"id": 3}, op=Op.UPDATE, unavailable=("note", "size")),
            Change({"id": 4, "size": 4}),
            Change({"id": 5}, op=Op.DELETE),
        ]
        for form in rig.some(rows=True):
            for batch in (rows(schema, changes), rows(schema, changes).slice(1, 3)):
                try:
                    written(rig.encoder(form), batch, topic, form)
                except EncodeError as error:
                    _check_names(form, error, schema, "note")
                else:
                    _compare(rig, form, batch, topic)

    def test_encode_errors_name_table_column_and_key(
        self, rig: EncoderRig, samples: Sequence[Sample], topic: str
    ) -> None:
        """A value that cannot be encoded raises an EncodeError that names table, column and key of the row.

        Users must find that row. The batch may be a slice, and deletes without values may precede the row: look at how
        rows are counted when the wrong key is named. The value may also be in the key.
        """
        refused = 0
        for form in rig.one_of_each_output(rows=True):
            for sample in rig.accepted(form, samples, topic):
                schema = _schema(sample.name, sample.type)
                name = f"{topic}_{sample.name}"
                for value in _refused(rig, form, schema, sample.odd, name):
                    refused += 1
                    for where in (schema, _schema(sample.name, sample.type, key=True)):
                        _must_name(rig, form, where, (sample.ordinary[0], value), name)
        if not refused:
            does_not_apply("the encoder encodes every value of the samples")

    @requires("json_null", "the format must distinguish the two nulls")
    @applies_if(DECODER)
    def test_a_json_null_differs_from_an_sql_null(self, rig: EncoderRig, topic: str) -> None:
        """A JSON null in a json column is read as the text `null`, and a SQL NULL as None."""
        schema = _schema("j", ColumnType(kind=Kind.JSON, source="jsonb"))
        forms = [form for form in rig.some(rows=True) if rig.refusal(form, schema, f"{topic}_j") is None]
        assert forms, "check refuses a json column in every form; remove the capability 'json_null'"
        for form in forms:
            _compare(rig, form, _batch(schema, ["null", None, '"null"', "null"]), f"{topic}_j")

    @applies_if(DECODER)
    def test_columns_keep_their_names(self, rig: EncoderRig, topic: str) -> None:
        """Columns are read with their names, even if these contain special characters or are words of the format.

        Names such as `größe (cm)`, `after`, `key` and `resolved` are valid in a database. `check` may refuse a name,
        with table and column.
        """
        names = ["größe (cm)", 'quo"te', "back\\slash", "new\nline", "$1", "9", "a.b", "😀", "Z", "z", "class"]
        names += ["after", "before", "key", "updated", "mvcc_timestamp", "topic", "resolved", "__crdb__"]
        for form in rig.some(rows=True):
            whole = table("odd", {"id": INT8} | dict.fromkeys(names, TEXT))
            accepted = list(names) if rig.refusal(form, whole, topic) is None else []
            for name in () if accepted else names:
                odd = table("odd", {"id": INT8, name: TEXT})
                error = rig.refusal(form, odd, topic)
                if error is None:
                    accepted.append(name)
                assert error is None or all(word in str(error) for word in (str(odd.name), name)), (
                    f"{form}: check refuses column {name!r} without naming table and column: {error}"
                )
            if accepted:
                schema = table("odd", {"id": INT8} | dict.fromkeys(accepted, TEXT))
                batch = rows(schema, [Change({"id": 1, **{name: f"of {name}" for name in accepted}})])
                _compare(rig, form, batch, topic)


def _assert_unchanged(rig: EncoderRig, samples: Sequence[Sample], about: str, topic: str) -> None:
    for form in rig.some(rows=True):
        for sample in rig.accepted(form, samples, topic):
            if sample.topic == about:
                schema = _schema(sample.name, sample.type)
                name = f"{topic}_{sample.name}"
                refused = _refused(rig, form, schema, sample.odd, name)
                written = [value for value in sample.odd if not any(value is one for one in refused)]
                _compare(rig, form, _batch(schema, [*sample.ordinary, *written]), name)


def _refused(rig: EncoderRig, form: Form, schema: Any, values: Sequence[Any], topic: str) -> list[Any]:
    def is_refused(some: Sequence[Any]) -> bool:
        try:
            written(rig.encoder(form), _batch(schema, some), topic, form)
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
            written(rig.encoder(form), batch, topic, form)
        _check_names(form, refused.value, schema, _COLUMN)


def _check_names(form: Form, error: EncodeError, schema: Any, column: str) -> None:
    for what, word in (("table", str(schema.name)), ("column", column), ("key", str(_KEY))):
        assert word in str(error), (
            f"{form}: an EncodeError must name table, column and key; this one lacks the {what} '{word}': {error}"
        )


def _compare(rig: EncoderRig, form: Form, batch: RowBatch, topic: str) -> None:
    difference = differences(batch.schema, form, expected_rows(batch, topic, form), rig.read(form, [batch], topic))
    assert not difference, (
        f"{difference}. An encoder must never change a value: encode raises EncodeError, or check refuses the column "
        "with ConfigError"
    )


def _schema(name: str, type_: ColumnType, *, key: bool = False) -> Any:
    primary_key = ("id", _COLUMN) if key else ("id",)
    return table(f"t_{name}", {"id": INT8, _COLUMN: type_}, primary_key=primary_key)


def _batch(schema: Any, values: Sequence[Any]) -> RowBatch:
    return rows(schema, [Change({"id": number, _COLUMN: value}) for number, value in enumerate(values)])


@applies_if(DECODER)
class Schemas:
    """A batch has one version of its table. Batches of several versions may arrive in any order."""

    def test_rows_are_encoded_with_the_schema_of_their_batch(self, rig: EncoderRig, topic: str) -> None:
        """After a column was added, dropped, widened, renamed or moved, each batch is encoded with its own schema.

        A worker may get rows of the old version after rows of the new one. Look for state that is stored by the name of
        the table and not updated when the schema differs.
        """
        first = _changed(_FIRST, 1)
        for change, columns in _CHANGES.items():
            second = _changed(columns, 2)
            for form in rig.some(rows=True):
                encoder = rig.encoder(form)
                for what, batch in (("before", first), ("after", second), ("before, again", first)):
                    found = rig.read(form, [batch], f"{topic}_{change}", encoder=encoder)
                    wanted = expected_rows(batch, f"{topic}_{change}", form)
                    difference = differences(batch.schema, form, wanted, found)
                    assert not difference, f"a column is {change}; rows of the version {what}: {difference}"


def _changed(columns: dict[str, ColumnType], version: int) -> RowBatch:
    schema = table("orders", columns, version=version)
    values = {name: _VALUES[name] for name in columns}
    return rows(schema, [Change(values), Change(values, op=Op.DELETE), Change({"id": 8})])
