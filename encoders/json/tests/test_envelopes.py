from __future__ import annotations

import pytest
from cdc_conformance.rows import INT8, TEXT
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_testing.table_rows import Row, make_rows

from cdc_core import ConfigError, ContractError, EncoderContext, Envelope, NewlineBody, Op, RowBatch, Timestamp
from cdc_core.envelope import ENVELOPES

UPDATED = Timestamp(1_701_102_296_662_969_433, 7)
UPDATED_TEXT = "1701102296662969433.0000000007"
METADATA = {"updated": True, "mvcc_timestamp": True, "key_in_value": True, "topic_in_value": True}


def encoder_with(envelope: str, **options: bool) -> JsonEncoder:
    wanted = Envelope(name=envelope, **options)
    return JsonEncoder(EncoderContext(changefeed="feed", envelope=wanted, options=JsonOptions()))


def values(rows: RowBatch, envelope: str, **options: bool) -> list[str | None]:
    found = encoder_with(envelope, **options).encode(rows, topic="foo").value.to_pylist()
    return [value if value is None else value.decode() for value in found]


@pytest.fixture
def history() -> RowBatch:
    """Insert, update, delete and scan of one row."""
    after = {"a": 1, "b": "x", "Z": None, "~": 0}
    changes = [
        Row(op=Op.INSERT, after=after, updated=UPDATED),
        Row(op=Op.UPDATE, after=after | {"b": "y"}, updated=UPDATED),
        Row(op=Op.DELETE, key=(1,), updated=UPDATED),
        Row(op=Op.SCAN, after=after | {"b": None}, updated=UPDATED),
    ]
    return make_rows({"a": INT8, "b": TEXT, "Z": INT8, "~": INT8}, changes, primary_key=["a"])


def test_a_bare_value_is_the_row_and_a_deleted_one_its_key_and_nulls(history: RowBatch) -> None:
    assert values(history, "bare") == [
        '{"Z": null, "a": 1, "b": "x", "~": 0}',
        '{"Z": null, "a": 1, "b": "y", "~": 0}',
        '{"Z": null, "a": 1, "b": null, "~": null}',
        '{"Z": null, "a": 1, "b": null, "~": 0}',
    ]


def test_metadata_of_a_bare_value_is_among_its_columns(history: RowBatch) -> None:
    metadata = f'{{"key": [1], "mvcc_timestamp": "{UPDATED_TEXT}", "topic": "foo", "updated": "{UPDATED_TEXT}"}}'
    assert values(history, "bare", **METADATA)[1:3] == [
        f'{{"Z": null, "__crdb__": {metadata}, "a": 1, "b": "y", "~": 0}}',
        f'{{"Z": null, "__crdb__": {metadata}, "a": 1, "b": null, "~": null}}',
    ]
    assert values(history, "bare", updated=True)[0] == (
        f'{{"Z": null, "__crdb__": {{"updated": "{UPDATED_TEXT}"}}, "a": 1, "b": "x", "~": 0}}'
    )


def test_a_row_value_is_the_row_and_a_deleted_one_a_tombstone(history: RowBatch) -> None:
    assert values(history, "row") == [
        '{"Z": null, "a": 1, "b": "x", "~": 0}',
        '{"Z": null, "a": 1, "b": "y", "~": 0}',
        None,
        '{"Z": null, "a": 1, "b": null, "~": 0}',
    ]
    assert values(history.slice(2, 1), "row") == [None]


def test_a_key_only_value_is_empty_and_a_deleted_one_a_tombstone(history: RowBatch) -> None:
    assert values(history, "key_only") == ["", "", None, ""]
    assert values(history.slice(0, 2), "key_only") == ["", ""]
    assert values(history.slice(2, 1), "key_only") == [None]


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_the_message_key_is_the_array_of_the_key_or_an_object(history: RowBatch, envelope: str) -> None:
    encoder = encoder_with(envelope)
    wanted = b'{"a": 1}' if encoder.context.envelope.enriched else b"[1]"
    assert encoder.encode(history, topic="foo").key.to_pylist() == [wanted] * 4
    empty = encoder.encode(history.slice(0, 0), topic="foo")
    assert (len(empty.key), len(empty.value)) == (0, 0)


@pytest.mark.parametrize("envelope", ["bare", "row", "key_only"])
def test_a_resolved_mark_is_in_the_place_of_metadata(envelope: str) -> None:
    mark = encoder_with(envelope).encode_resolved("foo", UPDATED)
    assert mark == f'{{"__crdb__":{{"resolved":"{UPDATED_TEXT}"}}}}'.encode()


@pytest.mark.parametrize("envelope", ["row", "key_only"])
def test_files_refuse_tombstones(history: RowBatch, envelope: str) -> None:
    encoder = encoder_with(envelope)
    for body in (encoder.open_body("foo"), NewlineBody(lambda rows: encoder.encode(rows, topic="foo").value)):
        with pytest.raises(ContractError, match="tombstone"):
            body.write(history)


def test_a_column_named_like_metadata_requires_wrapped() -> None:
    rows = make_rows({"a": INT8, "__crdb__": INT8}, [Row(after={"a": 1, "__crdb__": 2})], primary_key=["a"])
    tables = [(rows.schema, "foo")]
    for envelope in ("bare", "row"):
        with pytest.raises(ConfigError, match=r"public\.orders has a column named __crdb__.*use envelope 'wrapped'"):
            encoder_with(envelope).check(tables)
    for envelope in ("wrapped", "key_only"):
        encoder_with(envelope).check(tables)
    assert values(rows, "wrapped") == ['{"after": {"__crdb__": 2, "a": 1}}']
