from __future__ import annotations

import json
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_encoder_json.scanning import plain

from cdc_core import (
    ColumnType,
    ContractError,
    EncodeError,
    EncoderContext,
    EnvelopeOptions,
    Kind,
    Op,
    RowBatch,
    Timestamp,
)
from cdc_core.encoder import NewlineBody

INT = ColumnType(kind=Kind.INT, source="bigint", bits=64)
TEXT = ColumnType(kind=Kind.STRING, source="text")
FOO = {"a": INT, "b": TEXT}
UPDATED = Timestamp(1_701_102_296_662_969_433, 7)
MVCC = Timestamp(1_701_102_296_000_000_000)
UPDATED_TEXT = "1701102296662969433.0000000007"


def encoder_with(*, null_as_object: bool = False, **envelope: Any) -> JsonEncoder:
    options = JsonOptions(encode_json_value_null_as_object=null_as_object)
    return JsonEncoder(EncoderContext(changefeed="feed", envelope=EnvelopeOptions(**envelope), options=options))


def values(rows: RowBatch, **envelope: Any) -> list[str]:
    return [value.decode() for value in encoder_with(**envelope).encode(rows, topic="foo").value.to_pylist()]


@pytest.fixture
def history(make_rows: Any, row: Any) -> RowBatch:
    """Insert, update, delete and scan of one row, with before images."""
    rows: RowBatch = make_rows(
        FOO,
        [
            row(op=Op.INSERT, after={"a": 1, "b": "x"}, updated=UPDATED, mvcc=MVCC),
            row(op=Op.UPDATE, after={"a": 1, "b": "y"}, before={"a": 1, "b": "x"}, updated=UPDATED, mvcc=MVCC),
            row(op=Op.DELETE, before={"a": 1, "b": "y"}, updated=UPDATED, mvcc=MVCC),
            row(op=Op.SCAN, after={"a": 1, "b": None}, updated=UPDATED, mvcc=MVCC),
        ],
        primary_key=["a"],
        diff=True,
        mvcc=True,
    )
    return rows


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


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("updated", f', "updated": "{UPDATED_TEXT}"'),
        ("mvcc_timestamp", ', "mvcc_timestamp": "1701102296000000000.0000000000"'),
        ("key_in_value", ', "key": [1]'),
        ("topic_in_value", ', "topic": "foo"'),
    ],
)
def test_each_option_adds_its_field(history: RowBatch, option: str, text: str) -> None:
    assert values(history, **{option: True}) == [value[:-1] + text + "}" for value in values(history)]


def test_all_fields_stand_in_alphabetical_order(history: RowBatch) -> None:
    names = ("diff", "updated", "mvcc_timestamp", "key_in_value", "topic_in_value")
    assert values(history, **dict.fromkeys(names, True))[1] == (
        '{"after": {"a": 1, "b": "y"}, "before": {"a": 1, "b": "x"}, "key": [1], '
        f'"mvcc_timestamp": "1701102296000000000.0000000000", "topic": "foo", "updated": "{UPDATED_TEXT}"}}'
    )


def test_columns_stand_in_alphabetical_order_whatever_their_names(make_rows: Any, row: Any) -> None:
    names = ["b", "a", "Z", "ä", "10", "9", 'quo"te', "back\\slash", "new\nline", "", "{}", "$1", "😀", "\uffff", "a b"]
    rows = make_rows(
        dict.fromkeys(names, INT), [row(after={name: n for n, name in enumerate(names)})], primary_key=['quo"te', "😀"]
    )
    (value,) = values(rows, key_in_value=True)
    decoded = plain(value.encode())
    assert list(decoded["after"]) == sorted(names)
    assert decoded == {"after": {name: n for n, name in enumerate(names)}, "key": [6, 12]}
    assert '"quo\\"te": 6' in value
    assert '"new\\nline": 8' in value


def test_the_message_key_is_the_array_of_the_primary_key_in_key_order(make_rows: Any, row: Any) -> None:
    uuid = ColumnType(kind=Kind.UUID, source="uuid")
    after = {"id": "09265ab7-5f3a-40cb-a543-d37c8c893793", "city": "seattle"}
    rows = make_rows({"id": uuid, "city": TEXT}, [row(after=after)], primary_key=["city", "id"])
    batch = encoder_with().encode(rows, topic="rides")
    assert batch.key.to_pylist() == [b'["seattle", "09265ab7-5f3a-40cb-a543-d37c8c893793"]']
    assert batch.topic == "rides"


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Kind.BOOL, True, "true"),
        (Kind.FLOAT, 1.5, "1.5"),
        (Kind.FLOAT, float("nan"), '"NaN"'),
        (Kind.DECIMAL, "1.50", "1.50"),
        (Kind.DECIMAL, "-Infinity", '"-Infinity"'),
        (Kind.BYTES, b"ab", '"\\\\x6162"'),
        (Kind.DATE, 18292, '"2020-01-31"'),
        (Kind.TIME, 86_400_000_000, '"24:00:00"'),
        (Kind.TIMESTAMP, 1_500_000, '"1970-01-01T00:00:01.5"'),
        (Kind.TIMESTAMPTZ, -(2**63), '"-infinity"'),
        (Kind.TIMETZ, "12:00:00+02", '"12:00:00+02"'),
        (Kind.INTERVAL, "1 day", '"1 day"'),
        (Kind.ENUM, "red", '"red"'),
        (Kind.ARRAY, "[1, 2]", "[1, 2]"),
        (Kind.JSON, '{"a": 1}', '{"a": 1}'),
    ],
)
def test_keys_may_have_any_type(make_rows: Any, row: Any, kind: Kind, value: Any, text: str) -> None:
    type_ = ColumnType(kind=kind, source=str(kind))
    rows = make_rows({"a": INT, "k": type_}, [row(after={"a": 1, "k": value})], primary_key=["k", "a"])
    batch = encoder_with(key_in_value=True).encode(rows, topic="foo")
    assert batch.key.to_pylist() == [f"[{text}, 1]".encode()]
    assert batch.value.to_pylist() == [f'{{"after": {{"a": 1, "k": {text}}}, "key": [{text}, 1]}}'.encode()]


def test_json_null_is_an_object_in_values_and_keys_when_asked_for(make_rows: Any, row: Any) -> None:
    jsonb = ColumnType(kind=Kind.JSON, source="jsonb")
    after = [{"k": "null", "v": "null"}, {"k": "1", "v": None}]
    rows = make_rows({"k": jsonb, "v": jsonb}, [row(after=one) for one in after], primary_key=["k"])
    batch = encoder_with(null_as_object=True).encode(rows, topic="foo")
    null = b'{"__crdb_json_null__": true}'
    assert batch.key.to_pylist() == [b"[" + null + b"]", b"[1]"]
    assert batch.value.to_pylist() == [
        b'{"after": {"k": ' + null + b', "v": ' + null + b"}}",
        b'{"after": {"k": 1, "v": null}}',
    ]


def test_the_topic_is_escaped(history: RowBatch) -> None:
    value = encoder_with(topic_in_value=True).encode(history, topic='pre"fix.é').value[2].as_py()
    assert value.decode() == '{"after": null, "topic": "pre\\"fix.é"}'


def test_timestamps_with_and_without_logical_counters(make_rows: Any, row: Any) -> None:
    stamps = [Timestamp(0), Timestamp(1, 1), Timestamp(2**63 - 1, 2**31 - 1)]
    rows = make_rows(FOO, [row(after={"a": 1, "b": ""}, updated=stamp) for stamp in stamps], primary_key=["a"])
    for part in (rows, rows.slice(1), rows.slice(1, 1), rows.slice(0, 2)):
        updated = [plain(value.encode())["updated"] for value in values(part, updated=True)]
        wanted = [str(Timestamp(stamp["wall"], stamp["logical"])) for stamp in part.column("updated").to_pylist()]
        assert updated == wanted


def test_mvcc_timestamp_falls_back_to_updated(make_rows: Any, row: Any, history: RowBatch) -> None:
    unknown = make_rows(FOO, [row(after={"a": 1, "b": ""}, updated=UPDATED)], primary_key=["a"])
    assert plain(values(unknown, mvcc_timestamp=True)[0].encode())["mvcc_timestamp"] == UPDATED_TEXT
    names = history.batch.schema.names
    columns = {name: history.column(name) for name in names}
    known = pa.array([True, False, True, False])
    columns["mvcc"] = pa.compute.if_else(known, columns["mvcc"], pa.scalar(None, columns["mvcc"].type))
    partly = RowBatch(schema=history.schema, batch=pa.RecordBatch.from_pydict(columns))
    found = [plain(value.encode())["mvcc_timestamp"] for value in values(partly, mvcc_timestamp=True)]
    assert found == [str(MVCC), UPDATED_TEXT, str(MVCC), UPDATED_TEXT]


def test_diff_needs_before_images_for_updates_and_deletes_only(make_rows: Any, row: Any) -> None:
    new = make_rows(FOO, [row(op=op, after={"a": 1, "b": "x"}) for op in (Op.INSERT, Op.SCAN)], primary_key=["a"])
    assert values(new, diff=True) == ['{"after": {"a": 1, "b": "x"}, "before": null}'] * 2
    for op in (Op.UPDATE, Op.DELETE):
        rows = make_rows(FOO, [row(op=op, after=None, key=(1,))], primary_key=["a"])
        with pytest.raises(ContractError, match=r"public\.orders.*'before'.*'diff'"):
            values(rows, diff=True)


def test_resolved_payload_is_byte_exact() -> None:
    assert encoder_with().encode_resolved("foo", UPDATED) == b'{"resolved":"1701102296662969433.0000000007"}'


def test_slices_of_a_batch_give_the_same_messages(history: RowBatch) -> None:
    envelope = {"diff": True, "updated": True, "mvcc_timestamp": True, "key_in_value": True}
    whole = values(history, **envelope)
    for start in range(len(history) + 1):
        for length in range(len(history) + 1 - start):
            part = history.slice(start, length)
            assert values(part, **envelope) == whole[start : start + length]
            again = RowBatch.from_ipc(part.to_ipc())
            assert values(again, **envelope) == whole[start : start + length]


def test_an_empty_batch_gives_no_messages(history: RowBatch) -> None:
    everything = {"diff": True, "updated": True, "mvcc_timestamp": True, "key_in_value": True, "topic_in_value": True}
    encoder = encoder_with(**everything)
    batch = encoder.encode(history.slice(0, 0), topic="foo")
    assert (len(batch), len(batch.key), len(batch.value), len(batch.updated)) == (0, 0, 0, 0)
    body = encoder.open_body("foo")
    assert bytes(body.write(history.slice(2, 0))) + bytes(body.finish()) == b""


def test_messages_are_large_binary_without_nulls(history: RowBatch) -> None:
    batch = encoder_with().encode(history, topic="foo")
    assert batch.key.type == batch.value.type == pa.large_binary()
    assert batch.key.null_count == batch.value.null_count == 0
    assert batch.updated.equals(history.column("updated"))


@pytest.mark.parametrize("key_in_value", [False, True])
def test_a_file_body_is_the_values_each_with_a_newline(history: RowBatch, *, key_in_value: bool) -> None:
    encoder = encoder_with(updated=True, key_in_value=key_in_value)
    body, plain = encoder.open_body("foo"), NewlineBody(encoder, "foo")
    written = b"".join(bytes(body.write(rows)) for rows in (history, history.slice(1, 2))) + bytes(body.finish())
    assert written == b"".join(bytes(plain.write(rows)) for rows in (history, history.slice(1, 2)))
    messages = encoder.encode(history, topic="foo").value.to_pylist()
    assert written == b"".join(message + b"\n" for message in [*messages, *messages[1:3]])
    assert written.count(b"\n") == 6


def test_the_same_rows_give_the_same_bytes(history: RowBatch) -> None:
    encoder = encoder_with(diff=True, updated=True)
    first = encoder.encode(history, topic="foo")
    for again in (encoder, encoder_with(diff=True, updated=True)):
        second = again.encode(RowBatch.from_ipc(history.to_ipc()), topic="foo")
        assert second.value.equals(first.value)
        assert second.key.equals(first.key)


def test_a_new_schema_version_has_its_own_columns(make_rows: Any, row: Any) -> None:
    one = make_rows(FOO, [row(after={"a": 1, "b": "x"})], primary_key=["a"])
    two = make_rows({"a": INT, "c": INT}, [row(after={"a": 1, "c": 2})], primary_key=["a"], version=2)
    encoder = encoder_with()
    for rows, text in ((one, '{"a": 1, "b": "x"}'), (two, '{"a": 1, "c": 2}'), (one, '{"a": 1, "b": "x"}')):
        assert encoder.encode(rows, topic="foo").value.to_pylist() == [f'{{"after": {text}}}'.encode()]


def test_what_stands_under_a_missing_row_is_ignored(make_rows: Any, row: Any) -> None:
    numeric = ColumnType(kind=Kind.DECIMAL, source="numeric")
    rows = make_rows({"a": INT, "n": numeric}, [row(after={"a": n, "n": "1"}) for n in range(3)], primary_key=["a"])
    after = RowBatch.struct(
        rows.schema.after_type,
        [pa.array([0, 1, 2]), pa.array(["1", "hidden rubbish", "NaN"])],
        mask=pa.array([False, True, False]),
    )
    columns = {name: rows.column(name) for name in rows.batch.schema.names} | {"after": after}
    rows = RowBatch(schema=rows.schema, batch=pa.RecordBatch.from_pydict(columns))
    assert values(rows) == ['{"after": {"a": 0, "n": 1}}', '{"after": null}', '{"after": {"a": 2, "n": "NaN"}}']


def test_a_value_that_json_cannot_hold_names_table_column_and_key(make_rows: Any, row: Any) -> None:
    numeric = ColumnType(kind=Kind.DECIMAL, source="numeric")
    changes = [row(op=Op.DELETE, key=(1,)), row(after={"a": 2, "n": "1.5"}), row(after={"a": 3, "n": "1,5"})]
    rows = make_rows({"a": INT, "n": numeric}, changes, primary_key=["a"])
    with pytest.raises(EncodeError, match=r"column n of table public\.orders .* key \{'a': 3\}: the decimal '1,5'"):
        values(rows)
    with pytest.raises(EncodeError, match=r"key \{'a': 3\}"):
        values(rows.slice(1))


def test_the_encoder_survives_pickle(history: RowBatch) -> None:
    encoder = encoder_with(updated=True)
    copy = pickle.loads(pickle.dumps(encoder))
    assert copy.encode(history, topic="foo").value.equals(encoder.encode(history, topic="foo").value)


def test_messages_decode_to_what_went_in(history: RowBatch) -> None:
    batch = encoder_with(diff=True).encode(history, topic="foo")
    assert [plain(key) for key in batch.key.to_pylist()] == [[1]] * 4
    decoded = [plain(value) for value in batch.value.to_pylist()]
    assert [one["after"] for one in decoded] == history.column("after").to_pylist()
    assert [one["before"] for one in decoded] == history.column("before").to_pylist()
    assert decoded == [json.loads(value, parse_float=Decimal) for value in batch.value.to_pylist()]
