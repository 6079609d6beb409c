from __future__ import annotations

from typing import Any

import pytest
from cdc_conformance.rows import INT8, TEXT
from cdc_encoder_protobuf.decoder import ProtobufDecoder
from cdc_encoder_protobuf.encoder import ProtobufEncoder
from cdc_encoder_protobuf.options import ProtobufOptions
from cdc_testing.published_proto import delimited_messages, message
from cdc_testing.table_rows import Row, make_rows
from google.protobuf.json_format import MessageToDict

from cdc_core import EncoderContext, Envelope, Op, OptionError, RowBatch, Timestamp

UPDATED = Timestamp(1_701_102_296_662_969_433, 7)
A = {"a": {"int64Value": "1"}}


def context(*, output: str = "messages", **envelope: Any) -> EncoderContext:
    return EncoderContext(changefeed="feed", envelope=Envelope(**envelope), options=ProtobufOptions(), output=output)


def shown(payload: bytes | None) -> Any:
    """Return what a reader with the published file sees, as JSON values."""
    return None if payload is None else MessageToDict(message("Message", payload))


@pytest.fixture
def history() -> RowBatch:
    """Insert, update and delete of one row, with before images."""
    changes = [
        Row(op=Op.INSERT, after={"b": "x", "a": 1}, updated=UPDATED),
        Row(op=Op.UPDATE, after={"b": None, "a": 1}, before={"b": "x", "a": 1}, updated=UPDATED),
        Row(op=Op.DELETE, before={"b": None, "a": 1}, updated=UPDATED),
    ]
    return make_rows({"b": TEXT, "a": INT8}, changes, primary_key=["a"], diff=True)


X, NULL = {"b": {"stringValue": "x"}}, {"b": {}}
ROWS: dict[str, list[Any]] = {
    "wrapped": [
        {"wrapped": {"after": {"values": A | X}}},
        {"wrapped": {"after": {"values": A | NULL}}},
        {"wrapped": {}},
    ],
    "bare": [{"bare": {"values": A | X}}, {"bare": {"values": A | NULL}}, {"bare": {"values": A | NULL}}],
    "row": [{"bare": {"values": A | X}}, {"bare": {"values": A | NULL}}, None],
    "key_only": [{}, {}, None],
}


@pytest.mark.parametrize("envelope", ROWS)
def test_each_envelope_has_the_documented_messages(history: RowBatch, envelope: str) -> None:
    encoder = ProtobufEncoder(context(name=envelope))
    batch = encoder.encode(history, topic="orders")
    assert [shown(value) for value in batch.value.to_pylist()] == ROWS[envelope]
    keys = [MessageToDict(message("Key", key)) for key in batch.key.to_pylist()]
    assert keys == [{"key": A}] * 3
    mark = {"resolved": str(UPDATED)}
    wanted = {"resolved": mark} if envelope == "wrapped" else {"bareResolved": {"Crdb": mark}}
    assert shown(encoder.encode_resolved("orders", UPDATED)) == wanted
    assert ProtobufDecoder(encoder.context).resolved(encoder.encode_resolved("orders", UPDATED)) == UPDATED


@pytest.mark.parametrize("envelope", ["wrapped", "bare", "row"])
def test_an_unavailable_column_is_named_and_left_out(envelope: str) -> None:
    changes = [
        Row(after={"b": "x", "a": 1}),
        Row(op=Op.UPDATE, after={"b": None, "a": 2}, unavailable=("b",)),
        Row(after={"b": None, "a": 3}),
    ]
    rows = make_rows({"b": TEXT, "a": INT8}, changes, primary_key=["a"])
    found = [
        message("Message", value)
        for value in ProtobufEncoder(context(name=envelope)).encode(rows, topic="t").value.to_pylist()
    ]
    if envelope == "wrapped":
        lacking = [list(each.wrapped.unavailable) for each in found]
        columns = [sorted(each.wrapped.after.values) for each in found]
    else:
        lacking = [list(each.bare.__crdb__.unavailable) for each in found]
        columns = [sorted(each.bare.values) for each in found]
    assert lacking == [[], ["b"], []]
    assert columns == [["a", "b"], ["a"], ["a", "b"]]


def test_a_file_is_messages_behind_their_sizes(history: RowBatch) -> None:
    encoder = ProtobufEncoder(context(output="files", key_in_value=True))
    body = encoder.open_body("orders")
    data = b"".join(
        bytes(part) for part in (body.write(history.slice(0, 2)), body.write(history.slice(2)), body.finish())
    )
    found = [MessageToDict(each) for each in delimited_messages(data)]
    assert found == [{"wrapped": each["wrapped"] | {"key": {"key": A}}} for each in ROWS["wrapped"]]
    (mark,) = delimited_messages(encoder.encode_resolved("", UPDATED))
    assert mark.resolved.resolved == str(UPDATED)


def test_files_without_keys_are_refused() -> None:
    with pytest.raises(OptionError, match="encoder 'protobuf': files require option 'key_in_value'"):
        ProtobufEncoder(context(output="files")).check([])


def test_equal_keys_are_equal_bytes_whatever_the_order_of_the_columns() -> None:
    encoder = ProtobufEncoder(context())
    one = make_rows({"a": INT8, "b": TEXT}, [Row(after={"a": 1, "b": "x"})], primary_key=["a", "b"])
    other = make_rows({"b": TEXT, "a": INT8}, [Row(after={"b": "x", "a": 1})], primary_key=["b", "a"])
    assert encoder.encode(one, topic="t").key.equals(encoder.encode(other, topic="t").key)


@pytest.mark.parametrize("damage", [b"\xff", b"\x0a\x05\x0a", b"\x0b"])
def test_bytes_that_are_not_a_message_are_an_error(history: RowBatch, damage: bytes) -> None:
    decoder = ProtobufDecoder(context())
    with pytest.raises(ValueError, match="not a valid message of type Message"):
        decoder.message(history.schema, None, damage)
    with pytest.raises(ValueError, match="a message is not a row: it has resolved"):
        decoder.message(history.schema, None, ProtobufEncoder(context()).encode_resolved("", UPDATED))
