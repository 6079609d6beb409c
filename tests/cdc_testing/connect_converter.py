"""A JVM with jars of Maven, which py4j drives, and Kafka Connect's own JsonConverter in one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from cdc_sink_kafka.demo.jars import KAFKA_VERSION, jars_of
from cdc_sink_kafka.demo.java_process import java
from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, launch_gateway

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>cdc</groupId><artifactId>connect-json</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


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
        return _plain(self._converters[1].toConnectData("topic", data).value())


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
