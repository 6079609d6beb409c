"""Envelope `enriched`, against messages written by hand from CockroachDB's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cdc_conformance.rows import INT8, TEXT
from cdc_encoder_json.decoder import JsonDecoder
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_testing.table_rows import Row, make_rows

from cdc_core import (
    ColumnType,
    EncodeError,
    EncoderContext,
    Envelope,
    Kind,
    Op,
    OptionError,
    RowBatch,
    SourceFacts,
    TableSchema,
    Timestamp,
)

PRICE = ColumnType(kind=Kind.DECIMAL, source="numeric(10,2)", precision=10, scale=2)
NUMERIC = ColumnType(kind=Kind.DECIMAL, source="numeric")
JSON = ColumnType(kind=Kind.JSON, source="jsonb")
DOUBLE = ColumnType(kind=Kind.FLOAT, source="double precision", bits=64)
INTS = ColumnType(kind=Kind.ARRAY, source="bigint[]", element=INT8)
DOUBLES = ColumnType(kind=Kind.ARRAY, source="double precision[]", element=DOUBLE)
UPDATED = Timestamp(1_701_102_296_662_969_433, 7)
MVCC = Timestamp(1_701_102_290_000_000_000)
SOURCE = SourceFacts(changefeed_sink="kafka", job_id="shop", origin="postgresql", source_node_locality="region=eu")
TS = 1_743_792_394_409_866_000
FACTS = (
    '"changefeed_sink": "kafka", "database_name": "{database}", "job_id": "shop", '
    '{mvcc}"origin": "postgresql", "primary_keys": ["b", "a"], "schema_name": "{schema}", '
    '"source_node_locality": "region=eu", "table_name": "{table}"'
)


def context(*properties: str, options: JsonOptions | None = None, **flags: bool) -> EncoderContext:
    envelope = Envelope(name="enriched", enriched_properties=properties, **flags)
    return EncoderContext(
        changefeed="shop", envelope=envelope, options=options or JsonOptions(), source=SOURCE, clock=lambda: TS
    )


def messages(rows: RowBatch, *properties: str, **flags: bool) -> list[tuple[str, str]]:
    batch = JsonEncoder(context(*properties, **flags)).encode(rows, topic="foo")
    keys, values = batch.key.to_pylist(), batch.value.to_pylist()
    return [(key.decode(), value.decode()) for key, value in zip(keys, values, strict=True)]


def facts(schema: TableSchema, *, mvcc: str = "") -> str:
    name = schema.name
    return FACTS.format(database=name.database, schema=name.schema, table=name.table, mvcc=mvcc)


@pytest.fixture
def history() -> RowBatch:
    """Insert, update, delete and scan of a row with the key (b, a)."""
    first, second = {"a": 1, "b": "é", "n": 1}, {"a": 1, "b": "é", "n": None}
    changes = [
        Row(op=Op.INSERT, after=first, key=("é", 1), updated=UPDATED, mvcc=MVCC),
        Row(op=Op.UPDATE, after=second, before=first, key=("é", 1), updated=UPDATED, mvcc=MVCC),
        Row(op=Op.DELETE, before=second, key=("é", 1), updated=UPDATED, mvcc=MVCC),
        Row(op=Op.SCAN, after=first, key=("é", 1), updated=UPDATED, mvcc=MVCC),
    ]
    return make_rows({"a": INT8, "n": INT8, "b": TEXT}, changes, primary_key=["b", "a"], diff=True, mvcc=True)


def test_messages_say_what_happened_and_when_they_were_made(history: RowBatch) -> None:
    key, first, second = '{"a": 1, "b": "é"}', '{"a": 1, "b": "é", "n": 1}', '{"a": 1, "b": "é", "n": null}'
    assert messages(history) == [
        (key, f'{{"after": {first}, "op": "c", "ts_ns": {TS}}}'),
        (key, f'{{"after": {second}, "op": "u", "ts_ns": {TS}}}'),
        (key, f'{{"after": null, "op": "d", "ts_ns": {TS}}}'),
        (key, f'{{"after": {first}, "op": "c", "ts_ns": {TS}}}'),
    ]
    assert [value for _, value in messages(history, diff=True)] == [
        f'{{"after": {first}, "before": null, "op": "c", "ts_ns": {TS}}}',
        f'{{"after": {second}, "before": {first}, "op": "u", "ts_ns": {TS}}}',
        f'{{"after": null, "before": {second}, "op": "d", "ts_ns": {TS}}}',
        f'{{"after": {first}, "before": null, "op": "c", "ts_ns": {TS}}}',
    ]


def test_key_and_topic_are_among_the_members(history: RowBatch) -> None:
    value = messages(history, key_in_value=True, topic_in_value=True)[2][1]
    assert value == f'{{"after": null, "key": {{"a": 1, "b": "é"}}, "op": "d", "topic": "foo", "ts_ns": {TS}}}'


def test_the_source_names_the_table_and_holds_the_timestamps(history: RowBatch) -> None:
    delete = messages(history, "source")[2][1]
    assert delete == f'{{"after": null, "op": "d", "source": {{{facts(history.schema)}}}, "ts_ns": {TS}}}'
    known = facts(history.schema, mvcc=f'"mvcc_timestamp": "{MVCC}", ')
    times = f'"ts_hlc": "{UPDATED}", "ts_ns": {UPDATED.wall}'
    assert messages(history, "source", updated=True, mvcc_timestamp=True)[2][1] == (
        f'{{"after": null, "op": "d", "source": {{{known}, {times}}}, "ts_ns": {TS}}}'
    )


def test_a_resolved_mark_is_that_of_wrapped_messages() -> None:
    mark = JsonEncoder(context("schema", "source")).encode_resolved("foo", UPDATED)
    assert mark == f'{{"resolved":"{UPDATED}"}}'.encode()
    assert JsonDecoder(context("schema", "source")).resolved(mark) == UPDATED


def test_the_schema_describes_payloads_of_keys_and_values(history: RowBatch) -> None:
    key, value = messages(history, "schema", "source", updated=True, diff=True, key_in_value=True)[1]
    table = history.schema.name.table
    text, number = {"optional": False, "type": "string"}, {"optional": False, "type": "int64"}
    key_schema = {
        "fields": [{**text, "field": "b"}, {**number, "field": "a"}],
        "name": f"{table}.key",
        "optional": False,
        "type": "struct",
    }
    assert json.loads(key) == {"payload": {"a": 1, "b": "é"}, "schema": key_schema}
    columns = [{"field": name, "optional": True, "type": kind} for name, kind in (("a", "int64"), ("n", "int64"))]
    columns.append({"field": "b", "optional": True, "type": "string"})
    source = [
        {"field": name, "optional": False, "type": "string"}
        for name in ("changefeed_sink", "database_name", "job_id", "origin")
    ]
    source.append({"field": "primary_keys", "items": text, "optional": False, "type": "array"})
    source += [
        {"field": name, "optional": False, "type": "string"}
        for name in ("schema_name", "source_node_locality", "table_name")
    ]
    source += [{"field": "ts_hlc", "optional": True, "type": "string"}]
    source += [{"field": "ts_ns", "optional": True, "type": "int64"}]
    image = {"fields": columns, "optional": True, "type": "struct"}
    assert json.loads(value)["schema"] == {
        "fields": [
            {**image, "field": "before", "name": f"{table}.before.value"},
            {**image, "field": "after", "name": f"{table}.after.value"},
            {"field": "source", "fields": source, "name": "cockroachdb.source", "optional": True, "type": "struct"},
            {**key_schema, "field": "key"},
            {**number, "field": "ts_ns"},
            {**text, "field": "op"},
        ],
        "name": "cockroachdb.envelope",
        "optional": False,
        "type": "struct",
    }
    payload = messages(history, "source", updated=True, diff=True, key_in_value=True)[1][1]
    assert value.startswith(f'{{"payload": {payload}, "schema": {{"fields": [')


def test_values_of_any_form_are_texts_beside_a_schema() -> None:
    columns = {"a": INT8, "p": PRICE, "m": NUMERIC, "j": JSON, "i": INTS}
    after = {"a": 1, "p": "22.30", "m": "1.5", "j": '{"x": "é"}', "i": "[1, null]"}
    rows = make_rows(columns, [Row(after=after), Row(after={**dict.fromkeys(columns), "a": 2})], primary_key=["a"])
    described = context("schema")
    batch = JsonEncoder(described).encode(rows, topic="t")
    values = [json.loads(value) for value in batch.value.to_pylist()]
    assert values[0]["payload"]["after"] == {"a": 1, "p": 22.3, "m": 1.5, "j": '{"x": "é"}', "i": [1, None]}
    assert '"p": 22.30' in batch.value[0].as_py().decode()
    fields = {field["field"]: field for field in values[0]["schema"]["fields"][0]["fields"]}
    assert fields["p"] == {
        "field": "p",
        "name": "org.apache.kafka.connect.data.Decimal",
        "optional": True,
        "parameters": {"connect.decimal.precision": "10", "scale": "2"},
        "type": "bytes",
        "version": 1,
    }
    assert fields["m"] == {"field": "m", "name": "decimal", "optional": True, "type": "double"}
    assert fields["j"] == {"field": "j", "name": "json", "optional": True, "type": "string"}
    items = {"optional": True, "type": "int64"}
    assert fields["i"] == {"field": "i", "items": items, "optional": True, "type": "array"}
    decoded = JsonDecoder(described).message(rows.schema, batch.key[0].as_py(), batch.value[0].as_py())
    assert (decoded.key, decoded.after, decoded.op) == ((1,), after, Op.INSERT)


@pytest.mark.parametrize(
    ("type_", "good", "bad", "reason"),
    [
        (INTS, "[1]", "[[1]]", "an array of arrays has no Kafka Connect schema"),
        (DOUBLE, 1.5, float("-inf"), "would read NaN and infinities as 0"),
        (NUMERIC, "1.50", "NaN", "would read NaN and infinities as 0"),
        (DOUBLES, "[1, null]", '["Infinity"]', "would read NaN and infinities as 0"),
    ],
)
def test_what_connect_would_read_as_zero_is_refused_beside_a_schema(
    type_: ColumnType, good: Any, bad: Any, reason: str
) -> None:
    changes = [Row(after={"a": 1, "i": None}), Row(after={"a": 2, "i": good}), Row(after={"a": 3, "i": bad})]
    rows = make_rows({"a": INT8, "i": type_}, changes, primary_key=["a"])
    with pytest.raises(EncodeError, match=reason) as refused:
        JsonEncoder(context("schema")).encode(rows, topic="t")
    assert refused.value.row == 2
    assert len(messages(rows)) == 3


def test_the_schema_of_rows_that_lack_columns_has_a_field_for_their_names() -> None:
    changes = [Row(after={"a": 1, "n": 2}), Row(after={"a": 2, "n": None}, unavailable=["n"])]
    rows = make_rows({"a": INT8, "n": INT8}, changes, primary_key=["a"])
    complete, lacking = (json.loads(value) for _, value in messages(rows, "schema"))
    assert lacking["payload"] == {"after": {"a": 2}, "op": "c", "ts_ns": TS, "unavailable": ["n"]}
    names = [[field["field"] for field in each["schema"]["fields"]] for each in (complete, lacking)]
    assert names == [["after", "ts_ns", "op"], ["after", "ts_ns", "op", "unavailable"]]


def test_a_schema_is_in_the_message_or_in_a_registry() -> None:
    options = JsonOptions(confluent_schema_registry="http://localhost:1")
    with pytest.raises(OptionError, match="remove one of them"):
        JsonEncoder(context("schema", options=options))


def test_a_batch_has_one_time(history: RowBatch) -> None:
    times = iter(range(10))
    wanted = EncoderContext(
        changefeed="c", envelope=Envelope(name="enriched"), options=JsonOptions(), clock=lambda: next(times)
    )
    encoder = JsonEncoder(wanted)
    for time in range(2):
        values = encoder.encode(history, topic="t").value.to_pylist()
        assert {json.loads(value)["ts_ns"] for value in values} == {time}
