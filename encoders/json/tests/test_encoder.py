from __future__ import annotations

from typing import Any

import pytest
from cdc_conformance.rows import INT8, TEXT
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_testing.table_rows import Row, history_of_a_row, make_rows

from cdc_core import ColumnType, ContractError, EncoderContext, Envelope, Kind, NewlineBody, Op, RowBatch, Timestamp

FOO = {"a": INT8, "b": TEXT}
UPDATED = Timestamp(1_701_102_296_662_969_433, 7)
MVCC = Timestamp(1_701_102_296_000_000_000)
UPDATED_TEXT = "1701102296662969433.0000000007"


def encoder_with(*, null_as_object: bool = False, **envelope: Any) -> JsonEncoder:
    options = JsonOptions(encode_json_value_null_as_object=null_as_object)
    return JsonEncoder(EncoderContext(changefeed="feed", envelope=Envelope(**envelope), options=options))


def values(rows: RowBatch, **envelope: Any) -> list[str]:
    return [value.decode() for value in encoder_with(**envelope).encode(rows, topic="foo").value.to_pylist()]


@pytest.fixture
def history() -> RowBatch:
    return history_of_a_row(UPDATED, MVCC)


def test_wrapped_envelope_is_byte_exact(history: RowBatch) -> None:
    assert values(history) == [
        '{"after": {"a": 1, "b": "x"}}',
        '{"after": {"a": 1, "b": "y"}}',
        '{"after": null}',
        '{"after": {"a": 1, "b": null}}',
    ]


def test_diff_adds_the_row_before_or_null(history: RowBatch) -> None:
    assert values(history, diff=True) == [
        '{"after": {"a": 1, "b": "x"}, "before": null}',
        '{"after": {"a": 1, "b": "y"}, "before": {"a": 1, "b": "x"}}',
        '{"after": null, "before": {"a": 1, "b": "y"}}',
        '{"after": {"a": 1, "b": null}, "before": null}',
    ]


def test_members_are_in_alphabetical_order(history: RowBatch) -> None:
    names = ("diff", "updated", "mvcc_timestamp", "key_in_value", "topic_in_value")
    assert values(history, **dict.fromkeys(names, True))[1] == (
        '{"after": {"a": 1, "b": "y"}, "before": {"a": 1, "b": "x"}, "key": [1], '
        f'"mvcc_timestamp": "1701102296000000000.0000000000", "topic": "foo", "updated": "{UPDATED_TEXT}"}}'
    )


def test_the_message_key_is_the_array_of_the_primary_key_in_key_order() -> None:
    uuid = ColumnType(kind=Kind.UUID, source="uuid")
    after = {"id": "09265ab7-5f3a-40cb-a543-d37c8c893793", "city": "seattle"}
    rows = make_rows({"id": uuid, "city": TEXT}, [Row(after=after)], primary_key=["city", "id"])
    batch = encoder_with().encode(rows, topic="rides")
    assert batch.key.to_pylist() == [b'["seattle", "09265ab7-5f3a-40cb-a543-d37c8c893793"]']
    assert batch.topic == "rides"


def test_json_null_is_an_object_in_values_and_keys_with_the_option() -> None:
    jsonb = ColumnType(kind=Kind.JSON, source="jsonb")
    after = [{"k": "null", "v": "null"}, {"k": "1", "v": None}]
    rows = make_rows({"k": jsonb, "v": jsonb}, [Row(after=one) for one in after], primary_key=["k"])
    batch = encoder_with(null_as_object=True).encode(rows, topic="foo")
    null = b'{"__crdb_json_null__": true}'
    assert batch.key.to_pylist() == [b"[" + null + b"]", b"[1]"]
    assert batch.value.to_pylist() == [
        b'{"after": {"k": ' + null + b', "v": ' + null + b"}}",
        b'{"after": {"k": 1, "v": null}}',
    ]


def test_diff_needs_before_images_for_updates_and_deletes_only() -> None:
    new = make_rows(FOO, [Row(op=op, after={"a": 1, "b": "x"}) for op in (Op.INSERT, Op.SCAN)], primary_key=["a"])
    assert values(new, diff=True) == ['{"after": {"a": 1, "b": "x"}, "before": null}'] * 2
    for op in (Op.UPDATE, Op.DELETE):
        rows = make_rows(FOO, [Row(op=op, after=None, key=(1,))], primary_key=["a"])
        with pytest.raises(ContractError, match=r"public\.orders.*'before'.*'diff'"):
            values(rows, diff=True)


def test_resolved_payload_is_byte_exact() -> None:
    assert encoder_with().encode_resolved("foo", UPDATED) == b'{"resolved":"1701102296662969433.0000000007"}'


@pytest.mark.parametrize("key_in_value", [False, True])
def test_a_file_body_is_the_values_each_with_a_newline(history: RowBatch, *, key_in_value: bool) -> None:
    encoder = encoder_with(updated=True, key_in_value=key_in_value)
    body, plain = encoder.open_body("foo"), NewlineBody(lambda rows: encoder.encode(rows, topic="foo").value)
    written = b"".join(bytes(body.write(rows)) for rows in (history, history.slice(1, 2))) + bytes(body.finish())
    assert written == b"".join(bytes(plain.write(rows)) for rows in (history, history.slice(1, 2)))
    messages = encoder.encode(history, topic="foo").value.to_pylist()
    assert written == b"".join(message + b"\n" for message in [*messages, *messages[1:3]])
    assert written.count(b"\n") == 6
