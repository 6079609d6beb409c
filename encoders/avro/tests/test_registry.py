"""Messages with a real registry, read by Confluent's deserializer."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import pytest
from cdc_conformance.rows import INT8, TEXT
from cdc_encoder_avro.encoder import AvroEncoder
from cdc_encoder_avro.options import AvroOptions
from cdc_schema_registry import unframe
from cdc_testing.table_rows import Row, make_rows
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro.read import SchemaResolutionError

from cdc_core import ColumnType, EncoderContext, Envelope, Kind, Op, RowBatch, TerminalError, Timestamp

INT4 = ColumnType(kind=Kind.INT, source="integer", bits=32)
REAL = ColumnType(kind=Kind.FLOAT, source="real", bits=32)
DOUBLE = ColumnType(kind=Kind.FLOAT, source="double precision", bits=64)
SHORT_TEXT = ColumnType(kind=Kind.STRING, source="character varying(5)")
STAMP = Timestamp(1_701_102_296_662_969_433, 7)
LEVELS = ["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"]


def encoder_for(url: str, *, options: Mapping[str, Any] | None = None, **envelope: Any) -> AvroEncoder:
    chosen = AvroOptions(confluent_schema_registry=url, **(options or {}))
    return AvroEncoder(EncoderContext(changefeed="feed", envelope=Envelope(**envelope), options=chosen))


def subjects(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/subjects") as answer:
        found: list[str] = json.load(answer)
        return found


class Consumer:
    """What reads messages: Confluent's deserializer, with the writers' schemas or with one of its own."""

    def __init__(self, client: SchemaRegistryClient) -> None:
        self._client = client

    def read(self, payload: bytes, field: str = MessageField.VALUE, *, schema: str | None = None) -> Any:
        deserializer = AvroDeserializer(self._client, schema)
        return deserializer(payload, SerializationContext("any", field))

    def schema_of(self, payload: bytes) -> str:
        schema_id, _ = unframe(payload)
        text: str | None = self._client.get_schema(schema_id).schema_str
        assert text is not None
        return text


@pytest.fixture(scope="session")
def consumer(schema_registry: Any) -> Iterator[Consumer]:
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        yield Consumer(client)


@pytest.fixture
def url(schema_registry: Any) -> str:
    found: str = schema_registry.url
    return found


@pytest.fixture
def one() -> Callable[..., RowBatch]:
    """A function that makes a batch of one row."""

    def made(types: Mapping[str, ColumnType], version: int = 1, **after: Any) -> RowBatch:
        return make_rows(types, [Row(after=after, updated=STAMP)], primary_key=["id"], version=version)

    return made


def test_confluents_deserializer_reads_what_is_written(url: str, consumer: Consumer, topic_prefix: str) -> None:
    types = {
        "id": INT8,
        "größe (cm)": TEXT,
        "price": ColumnType(kind=Kind.DECIMAL, source="numeric(10,2)", precision=10, scale=2),
        "tags": ColumnType(kind=Kind.ARRAY, source="text[]", element=TEXT),
    }
    after = {"id": 1, "größe (cm)": "é", "price": "-12.50", "tags": '["a", null]'}
    changes = [Row(after=after, updated=STAMP), Row(op=Op.DELETE, before=after, updated=STAMP)]
    rows = make_rows(types, changes, primary_key=["id"], diff=True)
    topic = f"{topic_prefix}orders"
    encoder = encoder_for(url, options={"avro_schema_prefix": "shop_"}, diff=True, updated=True)
    batch = encoder.encode(rows, topic=topic)
    assert [consumer.read(key, MessageField.KEY) for key in batch.key.to_pylist()] == [{"id": 1}, {"id": 1}]
    escaped = {"id": 1, "gr_u00f6__u00df_e_u0020__u0028_cm_u0029_": "é", "tags": ["a", None]}
    values = [consumer.read(value) for value in batch.value.to_pylist()]
    for image in (values[0]["after"], values[1]["before"]):
        assert str(image.pop("price")) == "-12.50"
        assert image == escaped
    assert values[1]["after"] is None
    assert {value["updated"] for value in values} == {str(STAMP)}
    assert {f"shop_{topic}-key", f"shop_{topic}-value"} <= set(subjects(url))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("first", ["rows", "resolved"])
def test_a_subject_holds_rows_and_resolved_marks(
    url: str, consumer: Consumer, topic_prefix: str, one: Any, set_compatibility: Any, level: str, first: str
) -> None:
    topic = f"{topic_prefix}orders"
    set_compatibility(f"{topic}-value", level)
    encoder = encoder_for(url)
    if first == "resolved":
        encoder.encode_resolved(topic, STAMP)
    row = encoder.encode(one({"id": INT8}, id=1), topic=topic).value[0].as_py()
    mark = encoder.encode_resolved(topic, STAMP)
    for schema in (None, consumer.schema_of(row)):
        assert consumer.read(mark, schema=schema)["resolved"] == str(STAMP)
        assert consumer.read(row, schema=schema) == {"after": {"id": 1}, "resolved": None}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("first", ["complete", "lacking"])
def test_a_subject_holds_rows_that_lack_values_at_every_level(
    url: str, consumer: Consumer, topic_prefix: str, set_compatibility: Any, level: str, first: str
) -> None:
    topic = f"{topic_prefix}orders"
    set_compatibility(f"{topic}-value", level)
    encoder = encoder_for(url)
    changes = [
        Row(after={"id": 1, "body": "b"}),
        Row(op=Op.UPDATE, after={"id": 1, "body": None}, unavailable=("body",)),
    ]
    rows = make_rows({"id": INT8, "body": TEXT}, changes, primary_key=["id"])
    encoder.encode(rows.slice(0 if first == "complete" else 1, 1), topic=topic)
    complete, lacking = encoder.encode(rows, topic=topic).value.to_pylist()
    assert consumer.read(complete) == {"after": {"id": 1, "body": "b"}, "resolved": None}
    names = {"unavailable": ["body"]}
    assert consumer.read(lacking) == {"after": {"id": 1, "body": None}, "resolved": None, **names}
    assert consumer.read(complete, schema=consumer.schema_of(lacking))["unavailable"] is None
    wider = make_rows(
        {"id": INT8, "body": TEXT, "new": INT8}, [Row(after={"id": 1, "body": "b", "new": 2})], primary_key=["id"]
    )
    assert consumer.read(encoder.encode(wider, topic=topic).value[0].as_py())["after"]["new"] == 2


STEPS: dict[str, tuple[dict[str, ColumnType], dict[str, Any], dict[str, Any]]] = {
    "added": ({"id": INT4, "a": INT4, "r": REAL, "s": SHORT_TEXT, "new": TEXT}, {"new": "n"}, {}),
    "dropped": ({"id": INT4, "r": REAL, "s": SHORT_TEXT}, {}, {"a": None}),
    "widened": ({"id": INT8, "a": INT8, "r": DOUBLE, "s": TEXT}, {"a": 2**40, "r": 0.1}, {"a": 2**40, "r": 0.1}),
}
"""By name of a change: the columns after it, values, and what of them a reader with the old schema sees."""
OLD_TYPES = {"id": INT4, "a": INT4, "r": REAL, "s": SHORT_TEXT}


@pytest.mark.parametrize("level", ["BACKWARD", "FULL_TRANSITIVE"])
@pytest.mark.parametrize("change", STEPS)
def test_a_consumer_with_the_old_schema_can_read_when_a_column_is(
    url: str, consumer: Consumer, topic_prefix: str, one: Any, set_compatibility: Any, level: str, change: str
) -> None:
    topic = f"{topic_prefix}orders"
    for part in ("key", "value"):
        set_compatibility(f"{topic}-{part}", level)
    encoder = encoder_for(url)
    plain = {"id": 1, "a": 2, "r": 0.5, "s": "x"}
    types, values, seen = STEPS[change]
    old = encoder.encode(one(OLD_TYPES, **plain), topic=topic)
    after = {name: {**plain, **values}[name] for name in types}
    new = encoder.encode(one(types, version=2, **after), topic=topic)
    old_value, new_value = old.value[0].as_py(), new.value[0].as_py()
    assert unframe(old_value)[0] != unframe(new_value)[0]
    old_schema, new_schema = consumer.schema_of(old_value), consumer.schema_of(new_value)
    assert consumer.read(new_value, schema=old_schema)["after"] == {**plain, **seen}
    assert consumer.read(old_value, schema=new_schema)["after"] == {name: plain.get(name) for name in types}
    assert new.key == old.key  # with the id of its schema, so the row stays in its partition
    assert consumer.read(new.key[0].as_py(), MessageField.KEY) == {"id": 1}
    # a worker that still has rows of the old version finds its schema again
    again = encoder_for(url).encode(one(OLD_TYPES, **plain), topic=topic).value[0].as_py()
    assert again == old_value


def test_a_new_scale_is_read_correctly_with_the_writers_schema(
    url: str, consumer: Consumer, topic_prefix: str, one: Any
) -> None:
    encoder = encoder_for(url)
    for version, scale in enumerate((2, 4), start=1):
        price = ColumnType(kind=Kind.DECIMAL, source=f"numeric(10,{scale})", precision=10, scale=scale)
        text = f"{Decimal('12.34'):.{scale}f}"
        batch = encoder.encode(one({"id": INT8, "p": price}, id=1, p=text, version=version), topic=topic_prefix)
        assert str(consumer.read(batch.value[0].as_py())["after"]["p"]) == text


@pytest.mark.parametrize(("level", "accepted"), [("BACKWARD", True), ("FORWARD", False), ("FULL", False)])
def test_a_label_can_be_added_to_an_avro_enum_unless_old_readers_must_know_it(
    url: str, consumer: Consumer, topic_prefix: str, one: Any, set_compatibility: Any, level: str, *, accepted: bool
) -> None:
    set_compatibility(f"{topic_prefix}-value", level)
    encoder = encoder_for(url, options={"avro_enum": "enum"})
    small, large = (
        {"id": INT8, "c": ColumnType(kind=Kind.ENUM, source="colour", labels=labels)}
        for labels in (("red", "green"), ("red", "green", "blue"))
    )
    old = encoder.encode(one(small, id=1, c="red"), topic=topic_prefix).value[0].as_py()
    rows = one(large, id=1, c="blue", version=2)
    if not accepted:
        with pytest.raises(TerminalError, match="incompatible"):
            encoder.encode(rows, topic=topic_prefix)
        return
    new = encoder.encode(rows, topic=topic_prefix).value[0].as_py()
    assert consumer.read(new)["after"]["c"] == "blue"
    assert consumer.read(old, schema=consumer.schema_of(new))["after"]["c"] == "red"
    with pytest.raises(SchemaResolutionError, match="blue"):
        consumer.read(new, schema=consumer.schema_of(old))
