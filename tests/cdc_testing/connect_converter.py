"""Kafka Connect's own JsonConverter, in a JVM that py4j drives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cdc_sink_kafka.demo.jars import KAFKA_VERSION, jars_of
from cdc_testing.java_gateway import java_gateway

__all__ = ["ConnectConverter", "connect_converter"]

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
