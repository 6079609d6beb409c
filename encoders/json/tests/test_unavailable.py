"""Rows with values that the source does not know: they name these columns, and lack them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cdc_conformance.rows import INT8, TEXT
from cdc_encoder_json.decoder import JsonDecoder
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.json_schema import value_schema
from cdc_encoder_json.options import JsonOptions
from cdc_testing.table_rows import Row, make_rows
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from cdc_core import ColumnType, EncodeError, EncoderContext, Envelope, Kind, Op, RowBatch, Timestamp

TYPES = {"id": INT8, "body": TEXT, "Note": TEXT, "n": INT8}
METADATA = {"updated": True, "mvcc_timestamp": True, "key_in_value": True, "topic_in_value": True}
UPDATED = Timestamp(5)
STAMP = "5.0000000000"


def context_of(envelope: str, **options: bool) -> EncoderContext:
    return EncoderContext(changefeed="feed", envelope=Envelope(name=envelope, **options), options=JsonOptions())


def values(rows: RowBatch, envelope: str, **options: bool) -> list[str | None]:
    found = JsonEncoder(context_of(envelope, **options)).encode(rows, topic="foo").value.to_pylist()
    return [value if value is None else value.decode() for value in found]


def after(id_: int, *lacking: str, n: int | None = 7) -> dict[str, Any]:
    whole = {"id": id_, "body": "b", "Note": None, "n": n}
    return whole | dict.fromkeys(lacking)


@pytest.fixture
def history() -> RowBatch:
    changes = [
        Row(after=after(1), updated=UPDATED),
        Row(op=Op.UPDATE, after=after(1, "body"), updated=UPDATED, unavailable=("body",)),
        Row(op=Op.DELETE, key=(1,), updated=UPDATED),
        Row(op=Op.UPDATE, after=after(2, "body", "Note"), updated=UPDATED, unavailable=("body", "Note")),
        Row(op=Op.UPDATE, after=after(3, "body"), updated=UPDATED, unavailable=("body",)),
    ]
    return make_rows(TYPES, changes, primary_key=["id"])


def test_a_wrapped_row_lacks_the_column_and_names_it(history: RowBatch) -> None:
    assert values(history, "wrapped") == [
        '{"after": {"Note": null, "body": "b", "id": 1, "n": 7}}',
        '{"after": {"Note": null, "id": 1, "n": 7}, "unavailable": ["body"]}',
        '{"after": null}',
        '{"after": {"id": 2, "n": 7}, "unavailable": ["body", "Note"]}',
        '{"after": {"Note": null, "id": 3, "n": 7}, "unavailable": ["body"]}',
    ]


def test_the_names_are_among_the_other_metadata(history: RowBatch) -> None:
    assert values(history, "wrapped", **METADATA)[1] == (
        '{"after": {"Note": null, "id": 1, "n": 7}, "key": [1], '
        f'"mvcc_timestamp": "{STAMP}", "topic": "foo", "unavailable": ["body"], "updated": "{STAMP}"}}'
    )
    assert values(history, "bare", updated=True)[1] == (
        f'{{"Note": null, "__crdb__": {{"unavailable": ["body"], "updated": "{STAMP}"}}, "id": 1, "n": 7}}'
    )


@pytest.mark.parametrize(
    ("envelope", "deleted"), [("bare", '{"Note": null, "body": null, "id": 1, "n": null}'), ("row", None)]
)
def test_a_row_as_message_gets_a_metadata_member_only_when_it_lacks_a_column(
    history: RowBatch, envelope: str, deleted: str | None
) -> None:
    assert values(history, envelope) == [
        '{"Note": null, "body": "b", "id": 1, "n": 7}',
        '{"Note": null, "__crdb__": {"unavailable": ["body"]}, "id": 1, "n": 7}',
        deleted,
        '{"__crdb__": {"unavailable": ["body", "Note"]}, "id": 2, "n": 7}',
        '{"Note": null, "__crdb__": {"unavailable": ["body"]}, "id": 3, "n": 7}',
    ]


def test_the_row_before_is_complete() -> None:
    change = Row(op=Op.UPDATE, after=after(1, "body"), before=after(1), unavailable=("body",))
    rows = make_rows(TYPES, [change], primary_key=["id"], diff=True)
    assert values(rows, "wrapped", diff=True) == [
        '{"after": {"Note": null, "id": 1, "n": 7}, "before": {"Note": null, "body": "b", "id": 1, "n": 7}, '
        '"unavailable": ["body"]}'
    ]


@given(st.lists(st.sets(st.sampled_from(["body", "Note", "n"])), max_size=8), st.sampled_from(["wrapped", "bare"]))
def test_rows_in_one_batch_are_encoded_as_each_alone(lacking: list[set[str]], envelope: str) -> None:
    changes = [Row(op=Op.UPDATE, after=after(n, *names), unavailable=tuple(names)) for n, names in enumerate(lacking)]
    rows = make_rows(TYPES, changes, primary_key=["id"])
    alone = [values(rows.slice(index, 1), envelope, **METADATA)[0] for index in range(len(rows))]
    assert values(rows, envelope, **METADATA) == alone


def test_a_file_with_unavailable_values_is_read_as_a_batch(history: RowBatch) -> None:
    context = context_of("wrapped", updated=True, key_in_value=True)
    body = bytes(JsonEncoder(context).open_body("foo").write(history))
    found = JsonDecoder(context).rows(history.schema, body)
    assert found.column("after").equals(history.column("after"))
    assert found.column("unavailable").equals(history.column("unavailable"))


@pytest.mark.parametrize("envelope", ["wrapped", "bare", "row"])
def test_the_registered_schema_allows_the_names(history: RowBatch, envelope: str) -> None:
    schema = value_schema(history.schema, Envelope(name=envelope)) or ""
    validator = Draft7Validator(json.loads(schema))
    for value in filter(None, values(history, envelope)):
        validator.validate(json.loads(value))


def test_an_error_names_the_row_of_the_whole_batch() -> None:
    types = {"id": INT8, "d": ColumnType(kind=Kind.DECIMAL, source="numeric"), "body": TEXT}
    whole = Row(after={"id": 1, "d": "1", "body": "b"})
    lacking = [
        Row(op=Op.UPDATE, after={"id": n, "d": d, "body": None}, unavailable=("body",))
        for n, d in ((2, "2"), (3, "three"))
    ]
    rows = make_rows(types, [lacking[0], whole, lacking[1]], primary_key=["id"])
    with pytest.raises(EncodeError, match=r"column d .* \(key {'id': 3}\)") as caught:
        JsonEncoder(context_of("wrapped")).encode(rows, topic="foo")
    assert caught.value.row == 2


def test_nothing_is_kept_for_each_set_of_columns_that_rows_lack() -> None:
    columns = {"id": INT8, **{f"c{n}": TEXT for n in range(6)}}
    whole = {"id": 1, **{f"c{n}": "x" for n in range(6)}}
    sets = [[f"c{n}" for n in range(6) if bits >> n & 1] for bits in range(64)]
    rows = make_rows(columns, [Row(after=whole, unavailable=lacking) for lacking in sets], primary_key=["id"])
    encoder = JsonEncoder(context_of("wrapped"))
    encoded = encoder.encode(rows, topic="t").value.to_pylist()
    assert [json.loads(value).get("unavailable", []) for value in encoded] == sets
    assert len(encoder._texts._texts._layouts) == 1
