"""Messages in a registry's wire format, with a real registry and Confluent's deserializer."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from cdc_conformance.rows import INT8, TEXT
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_schema_registry import Registry, unframe
from cdc_testing.kafka_fixtures import ProxyFactory
from cdc_testing.kafka_fixtures import Registry as Server
from cdc_testing.table_rows import Row, make_rows
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cdc_core import (
    ColumnType,
    ConfigError,
    EncoderContext,
    Envelope,
    Kind,
    Op,
    OptionError,
    RowBatch,
    TerminalError,
    Timestamp,
)

NUMERIC = ColumnType(kind=Kind.DECIMAL, source="numeric(10,2)", precision=10, scale=2)
NOW = Timestamp(1_701_102_296_662_969_433, 7)
OTHER = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
"""A schema of another producer."""
ENVELOPES = ["bare", "key_only", "row", "wrapped"]

EncoderFor = Callable[..., JsonEncoder]
Read = Callable[..., Any]


@pytest.fixture
def encoder_for(schema_registry: Server) -> EncoderFor:
    def open_(envelope: str = "wrapped", *, url: str | None = None, output: str = "messages", **more: bool) -> Any:
        return JsonEncoder(
            EncoderContext(
                changefeed="feed",
                envelope=Envelope(name=envelope, **more),
                options=JsonOptions(confluent_schema_registry=schema_registry.url if url is None else url),
                output=output,
            )
        )

    return open_


@pytest.fixture
def read(schema_registry: Server) -> Iterator[Read]:
    """Reads a message like a consumer, which validates it with its schema."""
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        deserializer = JSONDeserializer(None, schema_registry_client=client, conf={"validate": True})

        def read_(message: bytes | None, topic: str, field: Any = MessageField.VALUE) -> Any:
            return deserializer(message, SerializationContext(topic, field))

        yield read_


@pytest.fixture
def registry(schema_registry: Server) -> Registry:
    return Registry.of(schema_registry.url, owner="test")


@pytest.fixture
def rows_of() -> Callable[..., RowBatch]:
    def of(columns: dict[str, ColumnType], *, primary_key: Sequence[str] = ("id",), version: int = 1) -> RowBatch:
        """One row of 1s, changed and deleted."""
        after = {name: "1" if type_.kind is not Kind.INT else 1 for name, type_ in columns.items()}
        changes = [
            Row(op=Op.INSERT, after=after, updated=NOW),
            Row(op=Op.UPDATE, after=after | {name: None for name in columns if name not in primary_key}, updated=NOW),
            Row(op=Op.DELETE, key=tuple(after[name] for name in primary_key), updated=NOW),
        ]
        return make_rows(columns, changes, primary_key=primary_key, version=version)

    return of


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_a_consumer_reads_rows_and_marks_validated_with_their_schemas(
    encoder_for: EncoderFor, read: Any, rows_of: Any, topic_prefix: str, envelope: str
) -> None:
    topic = f"{topic_prefix}orders"
    rows = rows_of({"id": INT8, "price": NUMERIC, "note": TEXT}, primary_key=["note", "id"])
    encoder = encoder_for(envelope)
    plain = JsonEncoder(EncoderContext(changefeed="feed", envelope=Envelope(name=envelope), options=JsonOptions()))
    framed, wanted = encoder.encode(rows, topic=topic), plain.encode(rows, topic=topic)
    for key, plain_key in zip(framed.key.to_pylist(), wanted.key.to_pylist(), strict=True):
        assert unframe(key)[1] == plain_key
        assert read(key, topic, MessageField.KEY) == json.loads(plain_key) == ["1", 1]
    for value, plain_value in zip(framed.value.to_pylist(), wanted.value.to_pylist(), strict=True):
        if not plain_value:
            assert value == plain_value
            continue
        assert unframe(value)[1] == plain_value
        assert read(value, topic) == json.loads(plain_value)
    mark = encoder.encode_resolved(topic, NOW)
    assert unframe(mark)[1] == plain.encode_resolved(topic, NOW)
    assert read(mark, topic) == json.loads(plain.encode_resolved(topic, NOW))


def test_metadata_is_in_the_schema(encoder_for: EncoderFor, read: Any, rows_of: Any, topic_prefix: str) -> None:
    metadata = {"updated": True, "mvcc_timestamp": True, "key_in_value": True, "topic_in_value": True}
    for envelope in ("wrapped", "bare"):
        topic = topic_prefix + envelope
        batch = encoder_for(envelope, **metadata).encode(rows_of({"id": INT8, "a": TEXT}), topic=topic)
        for value in batch.value.to_pylist():
            found = read(value, topic)
            metadata_found = found if envelope == "wrapped" else found["__crdb__"]
            assert [metadata_found[name] for name in ("key", "topic", "updated")] == [[1], topic, str(NOW)]


def test_marks_have_the_schema_that_the_rows_of_their_topic_have(
    encoder_for: EncoderFor, rows_of: Any, registry: Registry, topic_prefix: str
) -> None:
    for envelope in ("wrapped", "bare", "row"):
        topic = topic_prefix + envelope
        value = encoder_for(envelope).encode(rows_of({"id": INT8}), topic=topic).value[0].as_py()
        mark = encoder_for(envelope).encode_resolved(topic, NOW)
        assert unframe(mark)[0] == unframe(value)[0]
        latest = registry.latest(f"{topic}-value")
        assert latest is not None
        assert latest.version == 1


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_rows_can_follow_the_marks_of_a_topic_that_had_none(
    encoder_for: EncoderFor, read: Any, rows_of: Any, set_compatibility: Any, topic_prefix: str, envelope: str
) -> None:
    topic = f"{topic_prefix}orders"
    early = encoder_for(envelope)
    first = early.encode_resolved(topic, NOW)
    set_compatibility(f"{topic}-value", "BACKWARD")
    rows = rows_of({"id": INT8, "a": TEXT})
    encoder_for(envelope).check([(rows.schema, topic)])
    encoder_for(envelope).encode(rows, topic=topic)
    for mark in (first, early.encode_resolved(topic, NOW), encoder_for(envelope).encode_resolved(topic, NOW)):
        assert read(mark, topic) == json.loads(unframe(mark)[1])


def test_a_subject_with_foreign_schemas_gets_a_schema_of_marks(
    encoder_for: EncoderFor, read: Any, registry: Registry, topic_prefix: str
) -> None:
    others = ({**OTHER, "type": "string"}, {**OTHER, "properties": {"resolved": {"type": "string"}}}, OTHER)
    for number, other in enumerate(others):
        topic = f"{topic_prefix}{number}"
        registry.register(f"{topic}-value", json.dumps(other), "JSON")
        mark = encoder_for("bare").encode_resolved(topic, NOW)
        assert read(mark, topic) == {"__crdb__": {"resolved": str(NOW)}}
        latest = registry.latest(f"{topic}-value")
        assert latest is not None
        assert (latest.version, latest.schema_id) == (2, unframe(mark)[0])


@pytest.mark.parametrize("envelope", ["wrapped", "bare", "row"])
def test_adding_and_widening_columns_is_compatible_and_old_messages_remain_readable(
    encoder_for: EncoderFor, read: Any, rows_of: Any, set_compatibility: Any, topic_prefix: str, envelope: str
) -> None:
    topic = f"{topic_prefix}orders"
    versions = [
        {"id": INT8},
        {"id": INT8, "n": INT8},
        {"id": INT8, "n": NUMERIC},
        {"id": INT8, "n": NUMERIC, "a": TEXT},
    ]
    encoder = encoder_for(envelope)
    messages: list[bytes] = []
    for number, columns in enumerate(versions, 1):
        rows = rows_of(columns, version=number)
        encoder.check([(rows.schema, topic)])
        messages += [value for value in encoder.encode(rows, topic=topic).value.to_pylist() if value is not None]
        set_compatibility(f"{topic}-value", "BACKWARD")
    assert len({unframe(message)[0] for message in messages}) == len(versions)
    for message in messages:
        assert read(message, topic) == json.loads(unframe(message)[1])


def test_dropping_a_column_is_refused_with_both_schemas_unless_the_subject_allows_it(
    encoder_for: EncoderFor, rows_of: Any, set_compatibility: Any, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}orders"
    encoder_for().encode(rows_of({"id": INT8, "secret_note": TEXT}), topic=topic)
    less = rows_of({"id": INT8}, version=2)
    set_compatibility(f"{topic}-value", "BACKWARD")
    for ask, refusal in (
        (lambda: encoder_for().check([(less.schema, topic)]), ConfigError),
        (lambda: encoder_for().encode(less, topic=topic), TerminalError),
    ):
        with pytest.raises(
            refusal, match=rf"subject '{topic}-value' as incompatible: .*version 1, .*secret_note.*the new schema is"
        ):
            ask()  # type: ignore[no-untyped-call]
    set_compatibility(f"{topic}-value", "NONE")
    assert len(encoder_for().encode(less, topic=topic)) == 3


def test_tables_that_share_a_topic_require_compatibility_none(
    encoder_for: EncoderFor, rows_of: Any, registry: Registry, set_compatibility: Any, topic_prefix: str
) -> None:
    tables = [(rows_of({"id": INT8, column: TEXT}).schema, topic_prefix) for column in ("a", "b")]
    subject = f"{topic_prefix}-value"
    registry.register(subject, json.dumps(OTHER), "JSON")
    set_compatibility(subject, "NONE")
    encoder_for().check(tables)
    set_compatibility(subject, "FORWARD")
    with pytest.raises(ConfigError, match=rf"share a topic and therefore subject '{subject}' .*\(FORWARD\)"):
        encoder_for().check(tables)


def test_the_registry_is_asked_once_for_each_schema_of_a_topic(
    encoder_for: EncoderFor, rows_of: Any, registry_proxy: ProxyFactory, topic_prefix: str
) -> None:
    proxy = registry_proxy()
    encoder = encoder_for(url=proxy.url)
    rows = rows_of({"id": INT8, "a": TEXT})
    for topic in ("a", "b"):
        for _ in range(3):
            encoder.encode(rows, topic=topic_prefix + topic)
            encoder.encode(RowBatch.from_ipc(rows.to_ipc()), topic=topic_prefix + topic)
            encoder.encode_resolved(topic_prefix + topic, NOW)
            pickle.loads(pickle.dumps(encoder)).encode(rows, topic=topic_prefix + topic)
    kinds = [request.partition(" ")[0] for request in proxy.requests if not request.endswith(("-key", "-value"))]
    assert (kinds.count("POST"), kinds.count("GET")) == (4, 4)


def test_files_have_no_place_for_schema_ids(encoder_for: EncoderFor) -> None:
    with pytest.raises(OptionError, match="'confluent_schema_registry' applies to messages only"):
        encoder_for(output="files")
