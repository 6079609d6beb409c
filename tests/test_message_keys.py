"""Keys of messages from another column than the primary key."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from cdc_encoder_avro.encoder import AvroEncoder
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_csv.decoder import CsvDecoder
from cdc_encoder_csv.encoder import CsvEncoder
from cdc_encoder_csv.options import CsvOptions
from cdc_encoder_json.decoder import JsonDecoder
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.json_schema import key_schema
from cdc_encoder_json.options import JsonOptions
from cdc_encoder_protobuf.decoder import ProtobufDecoder
from cdc_encoder_protobuf.encoder import ProtobufEncoder
from cdc_encoder_protobuf.options import ProtobufOptions
from cdc_testing.published_proto import message
from cdc_testing.table_rows import Row, make_rows

from cdc_core import (
    Changefeed,
    ColumnType,
    ConfigError,
    EncodeError,
    Encoder,
    EncoderContext,
    Envelope,
    Kind,
    Op,
    OptionError,
    RowBatch,
    TerminalError,
)
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.plugins.host import PluginHost

INT = ColumnType(kind=Kind.INT, source="bigint", bits=64)
TEXT = ColumnType(kind=Kind.STRING, source="text")


class _Alone(AvroEncoder):
    """The encoder without a registry, whose messages have no schema ids."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.registered: dict[str, str] = {}

    def _registered(self, subject: str, schema: str, *, aside: str | None = None) -> int:
        self.registered[subject] = schema
        return 1


def opened(kind: type[Encoder], options: Any, *, column: str = "city", **envelope: Any) -> Any:
    return kind(EncoderContext(changefeed="feed", envelope=Envelope(**envelope), options=options, key_column=column))


def json_encoder(**envelope: Any) -> Any:
    return opened(JsonEncoder, JsonOptions(), **envelope)


@pytest.fixture
def rows() -> RowBatch:
    changes = [Row(after={"id": 1, "city": "Rome"}), Row(op=Op.UPDATE, after={"id": 2, "city": None})]
    found: RowBatch = make_rows({"id": INT, "city": TEXT}, changes, primary_key=["id"])
    return found


def test_json_keys_are_of_the_column_and_values_have_the_primary_key(rows: RowBatch) -> None:
    batch = json_encoder(key_in_value=True).encode(rows, topic="orders")
    assert batch.key.to_pylist() == [b'["Rome"]', b"[null]"]
    assert [json.loads(value)["key"] for value in batch.value.to_pylist()] == [[1], [2]]


def test_enriched_json_keys_are_objects_of_the_column(rows: RowBatch) -> None:
    batch = json_encoder(name="enriched", enriched_properties=("schema",)).encode(rows, topic="orders")
    first, second = map(json.loads, batch.key.to_pylist())
    assert (first["payload"], second["payload"]) == ({"city": "Rome"}, {"city": None})
    assert [(field["field"], field["optional"]) for field in first["schema"]["fields"]] == [("city", True)]


def test_registered_json_keys_may_be_null(rows: RowBatch) -> None:
    encoder = json_encoder()
    schema = json.loads(key_schema(encoder.keyed_schema(rows.schema), Envelope(), nullable=True))
    for key in encoder.encode(rows, topic="orders").key.to_pylist():
        jsonschema.validate(json.loads(key), schema)


def test_csv_keys_are_of_the_column() -> None:
    rows = make_rows({"id": INT, "city": TEXT}, [Row(op=Op.SCAN, after={"id": 1, "city": "Rome"})], primary_key=["id"])
    assert opened(CsvEncoder, CsvOptions()).encode(rows, topic="orders").key.to_pylist() == [b"Rome"]


def test_protobuf_keys_are_of_the_column_and_values_have_the_primary_key(rows: RowBatch) -> None:
    batch = opened(ProtobufEncoder, ProtobufOptions(), key_in_value=True).encode(rows, topic="orders")
    first, second = (message("Key", key).key for key in batch.key.to_pylist())
    assert first["city"].string_value == "Rome"
    assert second["city"].WhichOneof("value") is None
    assert [*message("Message", batch.value[0].as_py()).wrapped.key.key] == ["id"]


def test_the_avro_schema_of_keys_is_of_the_column(rows: RowBatch) -> None:
    options = AvroOptions(confluent_schema_registry="http://nowhere.invalid")
    encoder = opened(_Alone, options, key_in_value=True)
    batch = encoder.encode(rows, topic="orders")
    assert [key[5:] for key in batch.key.to_pylist()] == [b"\x02\x08Rome", b"\x00"]
    assert [field["name"] for field in json.loads(encoder.registered["orders-key"])["fields"]] == ["city"]
    value = json.loads(encoder.registered["orders-value"])
    (key,) = (field["type"][1] for field in value["fields"] if field["name"] == "key")
    assert [field["name"] for field in key["fields"]] == ["id"]


@pytest.mark.parametrize(("diff", "key"), [(True, b'["Rome"]'), (False, b"[null]")])
def test_a_deleted_row_has_the_value_that_it_had_if_that_is_known(diff: bool, key: bytes) -> None:
    before = {"id": 1, "city": "Rome"}
    changes = [Row(op=Op.DELETE, before=before, key=(1,)), Row(after={"id": 2, "city": "Oslo"})]
    rows = make_rows({"id": INT, "city": TEXT}, changes, primary_key=["id"], diff=diff)
    assert json_encoder().encode(rows, topic="orders").key.to_pylist() == [key, b'["Oslo"]']


def test_a_deleted_row_has_the_value_in_its_primary_key() -> None:
    changes = [Row(op=Op.DELETE, key=(1, "Rome"))]
    rows = make_rows({"id": INT, "city": TEXT}, changes, primary_key=["id", "city"])
    assert json_encoder().encode(rows, topic="orders").key.to_pylist() == [b'["Rome"]']


def test_an_unavailable_value_is_refused() -> None:
    changes = [Row(after={"id": 1, "city": "x"}), Row(after={"id": 2, "city": None}, unavailable=("city",))]
    rows = make_rows({"id": INT, "city": TEXT}, changes, primary_key=["id"])
    wanted = r"column city of table public\.orders, which key_column names, is unavailable .* key \{'id': 2\}"
    with pytest.raises(EncodeError, match=wanted) as refused:
        json_encoder().encode(rows, topic="orders")
    assert refused.value.row == 1


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (JsonEncoder, JsonOptions()),
        (CsvEncoder, CsvOptions()),
        (ProtobufEncoder, ProtobufOptions()),
        (_Alone, AvroOptions(confluent_schema_registry="http://nowhere.invalid")),
    ],
)
def test_a_table_without_the_column_is_refused_at_the_start_and_ends_a_run(
    rows: RowBatch, kind: type[Encoder], options: Any
) -> None:
    encoder = opened(kind, options, column="town")
    wanted = r"table public\.orders has no column 'town', which the option key_column names; add the column"
    with pytest.raises(ConfigError, match=wanted):
        encoder.check([(rows.schema, "orders")])
    with pytest.raises(TerminalError, match=wanted):
        encoder.encode(rows, topic="orders")


@pytest.mark.parametrize(
    ("sink", "format_", "options", "wanted"),
    [
        ("kafka://broker", "json", {"key_column": "city"}, "'key_column' needs unordered = true"),
        (
            "kafka://broker",
            "json",
            {"unordered": True, "resolved": "1s"},
            "'unordered' cannot be combined with 'resolved'",
        ),
        (
            "file:///out",
            "json",
            {"key_column": "city", "unordered": True},
            "sink 'cloudstorage' writes files, which have no message keys; remove option 'key_column'",
        ),
        *(
            (
                "kafka://broker",
                format_,
                {"key_column": "city", "unordered": True, "envelope": envelope},
                f"envelope '{envelope}' identifies a deleted row only by its key, but with 'key_column' the key does "
                "not",
            )
            for format_ in ("json", "avro", "protobuf")
            for envelope in ("row", "key_only")
        ),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    sink: str, format_: str, options: dict[str, Any], wanted: str
) -> None:
    feed = Changefeed(
        name="f", source="postgresql://h/d", tables=("public.orders",), sink=sink, format=format_, options=options
    )
    with pytest.raises(OptionError, match=wanted):
        resolve(feed, PluginHost.load())


def test_the_encoder_is_told_the_column() -> None:
    options = {"key_column": "city", "unordered": True}
    feed = Changefeed(name="f", source="postgresql://h/d", tables=("public.orders",), sink="kafka://b", options=options)
    assert Parts(resolve(feed, PluginHost.load())).encoder_context().key_column == "city"


def test_decoders_take_the_primary_key_from_the_value_alone() -> None:
    rows = make_rows({"id": INT, "city": TEXT}, [Row(op=Op.SCAN, after={"id": 1, "city": "Rome"})], primary_key=["id"])
    for kind, decoder, options in (
        (JsonEncoder, JsonDecoder, JsonOptions()),
        (CsvEncoder, CsvDecoder, CsvOptions()),
        (ProtobufEncoder, ProtobufDecoder, ProtobufOptions()),
    ):
        encoder = opened(kind, options, key_in_value=True)
        batch = encoder.encode(rows, topic="orders")
        found = decoder(encoder.context).message(rows.schema, batch.key[0].as_py(), batch.value[0].as_py())
        assert (found.key, found.after) == ((1,), {"id": 1, "city": "Rome"})
