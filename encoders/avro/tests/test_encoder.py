from __future__ import annotations

import dataclasses
import io
import itertools
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from cdc_conformance.rows import INT8, TEXT
from cdc_encoder_avro.encoder import AvroEncoder
from cdc_encoder_avro.options import AvroOptions
from cdc_schema_registry import unframe
from cdc_testing.table_rows import Row, history_of_a_row, make_rows

from cdc_core import (
    ColumnType,
    ConfigError,
    EncodeError,
    EncoderContext,
    Envelope,
    Kind,
    RowBatch,
    TableName,
    Timestamp,
)

NUMERIC = ColumnType(kind=Kind.DECIMAL, source="numeric(5,2)", precision=5, scale=2)
FOO = {"a": INT8, "b": TEXT}
UPDATED = Timestamp(1_701_102_296_662_969_433, 7)
MVCC = Timestamp(1_701_102_296_000_000_000)
FLAGS = ("diff", "updated", "mvcc_timestamp", "key_in_value", "topic_in_value")


def encoder_with(*, output: str = "messages", options: AvroOptions | None = None, **envelope: Any) -> AvroEncoder:
    options = options or AvroOptions(confluent_schema_registry="http://user:secret@registry:8081")
    context = EncoderContext(changefeed="feed", envelope=Envelope(**envelope), options=options, output=output)
    return AvroEncoder(context)


@pytest.fixture
def history() -> RowBatch:
    return history_of_a_row(UPDATED, MVCC)


def records(payloads: Any, registered: Any) -> list[Any]:
    """Return what fastavro reads in messages; None for a tombstone."""
    found: list[Any] = []
    for payload in payloads.to_pylist():
        if payload is None:
            found.append(None)
            continue
        schema_id, data = unframe(payload)
        stream = io.BytesIO(data)
        found.append(fastavro.schemaless_reader(stream, json.loads(registered.text(schema_id)), None))
        assert not stream.read(1)
    return found


def stamp(value: dict[str, int]) -> str:
    return str(Timestamp(value["wall"], value["logical"]))


def envelopes(rows: RowBatch, *, topic: str, bare: bool) -> list[dict[str, Any]]:
    """Return what a loop over rows would give fastavro; it ignores the fields that the schema lacks."""
    columns = {name: rows.column(name).to_pylist() for name in rows.batch.schema.names}
    return [
        {
            "before": columns["before"][index] if "before" in columns else None,
            "record" if bare else "after": columns["after"][index],
            "updated": stamp(columns["updated"][index]),
            "mvcc_timestamp": stamp(columns["mvcc" if "mvcc" in columns else "updated"][index]),
            "resolved": None,
            "key": columns["key"][index],
            "topic": topic,
        }
        for index in range(len(rows))
    ]


@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=len(FLAGS))))
@pytest.mark.parametrize("envelope", ["wrapped", "bare"])
def test_every_envelope_is_written_as_fastavro_writes_it(
    history: RowBatch, registered: Any, envelope: str, flags: tuple[bool, ...]
) -> None:
    chosen = dict(zip(FLAGS, flags, strict=True))
    if envelope == "bare" and chosen["diff"]:
        chosen["diff"] = False
    batch = encoder_with(name=envelope, **chosen).encode(history, topic="orders")
    for payloads, expected in (
        (batch.key, history.column("key").to_pylist()),
        (batch.value, envelopes(history, topic="orders", bare=envelope == "bare")),
    ):
        for payload, value in zip(payloads.to_pylist(), expected, strict=True):
            schema_id, data = unframe(payload)
            out = io.BytesIO()
            fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(registered.text(schema_id))), value)
            assert data == out.getvalue()


def test_key_only_has_empty_values_and_tombstones(history: RowBatch, registered: Any) -> None:
    batch = encoder_with(name="key_only").encode(history, topic="orders")
    assert records(batch.key, registered) == [{"a": 1}] * 4
    assert records(batch.value, registered) == [{"resolved": None}, {"resolved": None}, None, {"resolved": None}]
    assert batch.value.type == pa.large_binary()
    mark = encoder_with(name="key_only").encode_resolved("orders", UPDATED)
    assert records(pa.array([mark]), registered) == [{"resolved": str(UPDATED)}]
    assert [subject for subject, _ in registered.schemas] == ["orders-key", "orders-value"]


def test_schemas_are_registered_once_for_each_version_and_topic(registered: Any) -> None:
    one = make_rows(FOO, [Row(after={"a": 1, "b": "x"})], primary_key=["a"])
    two = make_rows({"a": INT8, "c": INT8}, [Row(after={"a": 1, "c": 2})], primary_key=["a"], version=2)
    encoder = encoder_with()
    for _ in range(3):
        encoder.encode(one, topic="orders")
    assert registered.asked == 2
    encoder.encode(two, topic="orders")
    encoder.encode(two, topic="others")
    assert registered.asked == 6
    assert [subject for subject, _ in registered.schemas] == [
        "orders-key", "orders-value", "orders-value", "others-key", "others-value"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [("1,5", ".*'1,5'"), ("NaN", ".* no 'NaN'"), ("1000", "'1000' is not a decimal of the declared precision")],
)
@pytest.mark.usefixtures("registered")
def test_a_decimal_that_avro_cannot_represent_is_named(text: str, reason: str) -> None:
    changes = [Row(after={"a": 1, "n": "1.5"}), Row(after={"a": 2, "n": text})]
    rows = make_rows({"a": INT8, "n": NUMERIC}, changes, primary_key=["a"])
    with pytest.raises(
        EncodeError, match=rf"column n of table public\.orders .*key \{{'a': 2\}}\): {reason}"
    ) as refused:
        encoder_with().encode(rows, topic="orders")
    assert refused.value.row == 1


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Kind.TIMESTAMPTZ, 2**63 - 1, "'infinity'"),
        (Kind.DATE, -(2**31), "'-infinity'"),
        (Kind.TIME, 86_400_000_000, "'24:00:00'"),
        (Kind.TIMESTAMP, 2**62, f"'{2**62}'"),
    ],
)
def test_an_error_names_a_key_that_python_cannot_represent(registered: Any, kind: Kind, value: int, text: str) -> None:
    types = {"k": ColumnType(kind=kind, source=""), "n": NUMERIC}
    rows = make_rows(types, [Row(after={"k": value, "n": "1,5"})], primary_key=["k"])
    with pytest.raises(EncodeError, match=rf"\(key {{'k': {text}}}\)"):
        encoder_with().encode(rows, topic="orders")


def test_messages_without_a_registry_are_refused() -> None:
    with pytest.raises(ConfigError, match="messages require option 'confluent_schema_registry'"):
        encoder_with(options=AvroOptions()).check([])


@pytest.mark.parametrize("output", ["messages", "files"])
def test_a_table_whose_records_would_share_a_name_is_refused(output: str) -> None:
    rows = make_rows(FOO, [Row(after={"a": 1, "b": ""})], primary_key=["a"])
    schema = dataclasses.replace(rows.schema, name=TableName("shop", "public", "orders_envelope"))
    encoder = encoder_with(output=output, key_in_value=True)
    with pytest.raises(ConfigError, match=r"cannot encode table public\.orders_envelope as Avro: .*orders_envelope"):
        encoder.check([(schema, "orders")])
