"""Opens the parts of the sink at a broker, with topics that no other test uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any, TypeVar

import pytest
from cdc_sink_kafka.demo.servers import KafkaBroker
from cdc_sink_kafka.destination import KafkaDestination
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.resolved_sink import KafkaResolvedSink
from cdc_sink_kafka.sink import KafkaSink
from cdc_testing import kafka_reading
from cdc_testing.kafka_fixtures import QUICK_RETURN, Kafka
from cdc_testing.kafka_reading import Message, read_topics
from cdc_testing.kafka_rows import SmallEncoder, table_name

from cdc_core import Destination, EncoderContext, Envelope, ResolvedSink, Sink, SinkContext, parse_options

Part = TypeVar("Part", Sink, ResolvedSink, Destination)


@pytest.fixture
def context(topic_prefix: str) -> Callable[..., SinkContext]:
    """Make a context from a broker's address and options; keywords replace its other fields."""

    def make(address: str, options: Mapping[str, Any] | None = None, /, **changes: Any) -> SinkContext:
        values = {"topic_prefix": topic_prefix, **(options or {})}
        fields: dict[str, Any] = {
            "changefeed": "feed",
            "epoch": 7,
            "uri": f"kafka://{address}",
            "options": parse_options(KafkaOptions, values, owner="sink 'kafka'"),
            "encoder": SmallEncoder(EncoderContext(changefeed="feed", envelope=Envelope(), options=None)),
            "tables": (table_name(),),
        }
        return SinkContext(**(fields | changes))

    return make


@pytest.fixture
def open_part(context: Callable[..., SinkContext]) -> Iterator[Callable[..., Any]]:
    """Open a part of the sink at a broker's address; it is closed at the end of the test."""
    with ExitStack() as stack:

        def open_(part: type[Part], address: str, options: Mapping[str, Any] | None = None, /, **changes: Any) -> Part:
            return stack.enter_context(closing(part(context(address, options, **changes))))

        yield open_


@pytest.fixture
def destination_of(open_part: Callable[..., Any]) -> Callable[..., KafkaDestination]:
    """Open a destination at a broker's address."""

    def make(address: str, options: Mapping[str, Any] | None = None, /, **changes: Any) -> KafkaDestination:
        return open_part(KafkaDestination, address, options, **changes)

    return make


@pytest.fixture
def sink_of(open_part: Callable[..., Any], destination_of: Callable[..., KafkaDestination]) -> Callable[..., KafkaSink]:
    """Create the topics at a broker's address and open a sink."""

    def make(address: str, options: Mapping[str, Any] | None = None, /, **changes: Any) -> KafkaSink:
        destination_of(address, options, **changes).prepare()
        return open_part(KafkaSink, address, options, **changes)

    return make


@pytest.fixture
def resolved_sink_of(
    open_part: Callable[..., Any], destination_of: Callable[..., KafkaDestination]
) -> Callable[..., KafkaResolvedSink]:
    """Create the topics at a broker's address and open a resolved sink."""

    def make(address: str, options: Mapping[str, Any] | None = None, /, **changes: Any) -> KafkaResolvedSink:
        destination_of(address, options, **changes).prepare()
        return open_part(KafkaResolvedSink, address, options, **changes)

    return make


@pytest.fixture
def open_sink(kafka_broker: Kafka, sink_of: Callable[..., KafkaSink]) -> Callable[..., KafkaSink]:
    """Create the topics at the session's broker and open a sink."""

    def make(options: Mapping[str, Any] | None = None, /, **changes: Any) -> KafkaSink:
        return sink_of(kafka_broker.bootstrap_servers, options, **changes)

    return make


@pytest.fixture
def open_resolved_sink(
    kafka_broker: Kafka, resolved_sink_of: Callable[..., KafkaResolvedSink]
) -> Callable[..., KafkaResolvedSink]:
    """Create the topics at the session's broker and open a resolved sink."""

    def make(options: Mapping[str, Any] | None = None, /, **changes: Any) -> KafkaResolvedSink:
        return resolved_sink_of(kafka_broker.bootstrap_servers, options, **changes)

    return make


@pytest.fixture
def topic(topic_prefix: str) -> str:
    """The topic of the table that `rows` makes."""
    return f"{topic_prefix}orders"


@pytest.fixture
def create_topic(kafka_broker: Kafka, topic: str) -> Callable[..., None]:
    """Create the topic with the broker's own client; keywords are its settings."""

    def create(partitions: int = 1, **settings: str) -> None:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        kafka_reading.create_topic(
            kafka_broker.bootstrap_servers, topic, partitions=partitions, replication=1, config=config
        )

    return create


@pytest.fixture
def received(kafka_broker: Kafka, topic: str) -> Callable[..., list[Message]]:
    """Return all messages of the topic, partition by partition."""

    def read(name: str | None = None, *, address: str = kafka_broker.bootstrap_servers) -> list[Message]:
        return sorted(read_topics(address, [name or topic]), key=lambda message: (message.partition, message.offset))

    return read


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaBroker]:
    """A broker that the tests of a module may kill and pause, and must leave running."""
    with KafkaBroker(settings=QUICK_RETURN) as broker:
        yield broker
