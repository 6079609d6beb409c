"""Enriched messages with a schema, read by Kafka Connect's JsonConverter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyspark
import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_sink_kafka.demo.jars import KAFKA_VERSION, jars_of, pom
from cdc_sink_kafka.demo.java_process import java
from cdc_testing.table_rows import Row, make_rows
from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, launch_gateway

from cdc_core import ColumnType, EncoderContext, Envelope, Kind, Op, SourceFacts, Timestamp

_POM = pom("connect-json", f"org.apache.kafka:connect-json:{KAFKA_VERSION}")


class ConnectConverter:
    """Reads keys and values as a connector of Kafka Connect does, with `schemas.enable=true`."""

    def __init__(self, jvm: Any) -> None:
        self._converters = []
        for is_key in (True, False):
            converter = jvm.org.apache.kafka.connect.json.JsonConverter()
            settings = jvm.java.util.HashMap()
            settings.put("schemas.enable", "true")
            converter.configure(settings, is_key)
            self._converters.append(converter)

    def key(self, data: bytes) -> Any:
        """Return a message's key in Python's types, structs as dicts. Raises: Py4JJavaError."""
        return _plain(self._converters[0].toConnectData("topic", data).value())

    def value(self, data: bytes) -> Any:
        """Return a message's value in Python's types, structs as dicts. Raises: Py4JJavaError."""
        found = self._converters[1].toConnectData("topic", data)
        self._converters[1].fromConnectData("topic", found.schema(), found.value())  # as a connector that passes it on
        return _plain(found.value())


@contextmanager
def connect_converter() -> Iterator[ConnectConverter]:
    """Yield a converter; its JVM ends with the block."""
    jars = jars_of(f"connect-json-{KAFKA_VERSION}", _POM, what="Kafka Connect's JSON converter")
    with java_gateway(jars) as gateway:
        yield ConnectConverter(gateway.jvm)


def _plain(value: Any) -> Any:
    if not hasattr(value, "getClass"):
        return value
    if value.getClass().getSimpleName() == "Struct":
        return {field.name(): _plain(value.get(field)) for field in _items(value.schema().fields())}
    return [_plain(item) for item in _items(value)]


def _items(of: Any) -> list[Any]:
    """Return the items of a Java list. In a process that has imported pyspark, iterating ends with an error."""
    return [of.get(number) for number in range(of.size())]


@contextmanager
def java_gateway(jars: Path) -> Iterator[JavaGateway]:
    """Yield a gateway to a JVM that ends with the block. It may call Python, which listens at a free port."""
    (bridge,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port = launch_gateway(jarpath=str(bridge), classpath=f"{jars}/*", java_path=java(), die_on_exit=True)
    gateway = JavaGateway(
        gateway_parameters=GatewayParameters(port=port),
        callback_server_parameters=CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True),
    )
    server = gateway.get_callback_server()
    gateway.java_gateway_server.resetCallbackClient(
        gateway.java_gateway_server.getCallbackClient().getAddress(), server.get_listening_port()
    )
    try:
        yield gateway
    finally:
        gateway.shutdown()


_COLUMNS = {
    "id": ColumnType(kind=Kind.INT, source="bigint", bits=64),
    "flag": ColumnType(kind=Kind.BOOL, source="boolean"),
    "ratio": ColumnType(kind=Kind.FLOAT, source="double precision", bits=64),
    "price": ColumnType(kind=Kind.DECIMAL, source="numeric(30,2)", precision=30, scale=2),
    "thousands": ColumnType(kind=Kind.DECIMAL, source="numeric(3,-3)", precision=3, scale=-3),
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
    "thousands": "12000",
    "any_number": "1.5",
    "text": 'é "😀"',
    "data": b"ab",
    "json": '{"x": [1, null]}',
    "days": "[1, null, 3]",
}
_READ = _ROW | {
    "price": Decimal("1234567890123456789012345678.90"),
    "thousands": Decimal(12000),
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
