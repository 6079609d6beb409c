"""Enriched messages with a schema, read by Kafka Connect's JsonConverter."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_testing.connect_converter import ConnectConverter, connect_converter
from cdc_testing.table_rows import Row, make_rows

from cdc_core import ColumnType, EncoderContext, Envelope, Kind, Op, SourceFacts, Timestamp

_COLUMNS = {
    "id": ColumnType(kind=Kind.INT, source="bigint", bits=64),
    "flag": ColumnType(kind=Kind.BOOL, source="boolean"),
    "ratio": ColumnType(kind=Kind.FLOAT, source="double precision", bits=64),
    "price": ColumnType(kind=Kind.DECIMAL, source="numeric(30,2)", precision=30, scale=2),
    "any_number": ColumnType(kind=Kind.DECIMAL, source="numeric"),
    "text": ColumnType(kind=Kind.STRING, source="text"),
    "data": ColumnType(kind=Kind.BYTES, source="bytea"),
    "json": ColumnType(kind=Kind.JSON, source="jsonb"),
    "days": ColumnType(kind=Kind.ARRAY, source="bigint[]", element=ColumnType(kind=Kind.INT, source="bigint", bits=64)),
}
_ROW = {
    "id": 2**62 + 1,
    "flag": True,
    "ratio": 0.1,
    "price": "1234567890123456789012345678.90",
    "any_number": "1.5",
    "text": 'é "😀"',
    "data": b"ab",
    "json": '{"x": [1, null]}',
    "days": "[1, null, 3]",
}
_READ = _ROW | {
    "price": Decimal("1234567890123456789012345678.90"),
    "any_number": 1.5,
    "data": "\\x6162",
    "days": [1, None, 3],
}
_UPDATED = Timestamp(1_701_102_296_662_969_433, 7)


@pytest.fixture(scope="module")
def converter() -> Iterator[ConnectConverter]:
    with connect_converter() as found:
        yield found


def test_kafka_connect_reads_keys_and_values_of_every_operation(converter: ConnectConverter) -> None:
    nulls: dict[str, Any] = {**dict.fromkeys(_COLUMNS), "id": _ROW["id"]}
    changes = [
        Row(op=Op.INSERT, after=_ROW, updated=_UPDATED),
        Row(op=Op.UPDATE, after=nulls, before=_ROW, updated=_UPDATED),
        Row(op=Op.DELETE, before=nulls, key=(_ROW["id"],), updated=_UPDATED),
        Row(op=Op.UPDATE, after=nulls, before=_ROW, updated=_UPDATED, unavailable=["text", "json"]),
    ]
    rows = make_rows(_COLUMNS, changes, primary_key=["id"], diff=True)
    envelope = Envelope(
        name="enriched",
        enriched_properties=("schema", "source"),
        updated=True,
        diff=True,
        key_in_value=True,
        topic_in_value=True,
    )
    facts = SourceFacts(changefeed_sink="kafka", job_id="shop", origin="postgresql")
    context = EncoderContext(
        changefeed="shop", envelope=envelope, options=JsonOptions(), source=facts, clock=lambda: 2**60 + 1
    )
    batch = JsonEncoder(context).encode(rows, topic="orders")
    keys = [converter.key(key) for key in batch.key.to_pylist()]
    values = [converter.value(value) for value in batch.value.to_pylist()]
    key = {"id": _ROW["id"]}
    name = rows.schema.name
    common = {
        "key": key,
        "topic": "orders",
        "ts_ns": 2**60 + 1,
        "source": {
            "changefeed_sink": "kafka",
            "database_name": name.database,
            "job_id": "shop",
            "origin": "postgresql",
            "primary_keys": ["id"],
            "schema_name": name.schema,
            "source_node_locality": "",
            "table_name": name.table,
            "ts_hlc": str(_UPDATED),
            "ts_ns": _UPDATED.wall,
        },
    }
    assert keys == [key] * 4
    assert values == [
        common | {"op": "c", "before": None, "after": _READ},
        common | {"op": "u", "before": _READ, "after": nulls},
        common | {"op": "d", "before": nulls, "after": None},
        common | {"op": "u", "before": _READ, "after": nulls, "unavailable": ["text", "json"]},
    ]
