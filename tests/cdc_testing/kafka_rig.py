"""The parts of the Kafka sink at one broker, in topics that no other test uses, and what arrives there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import Any, TypeVar

from cdc_sink_kafka.destination import KafkaDestination
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.resolved_sink import KafkaResolvedSink
from cdc_sink_kafka.sink import KafkaSink
from cdc_testing import kafka_reading
from cdc_testing.kafka_reading import Message
from cdc_testing.kafka_rows import SmallEncoder, table_name

from cdc_core import Destination, EncoderContext, Envelope, ResolvedSink, Sink, SinkContext, parse_options

Part = TypeVar("Part", bound=Sink | ResolvedSink | Destination)
Options = Mapping[str, Any] | None


class KafkaRig:
    """Opens parts of the sink at the broker with *address*; *opened* closes them.

    Each takes options, and in keywords other fields of its `SinkContext`. `topic` is that of the table that
    `kafka_rows.rows` makes.
    """

    def __init__(self, address: str, prefix: str, opened: ExitStack) -> None:
        self.address = address
        self.prefix = prefix
        self.topic = f"{prefix}orders"
        self._opened = opened

    def at(self, address: str) -> KafkaRig:
        """Return the same rig at another broker."""
        return KafkaRig(address, self.prefix, self._opened)

    def context(self, options: Options = None, /, **changes: Any) -> SinkContext:
        values = {"topic_prefix": self.prefix, **(options or {})}
        fields: dict[str, Any] = {
            "changefeed": "feed",
            "epoch": 7,
            "uri": f"kafka://{self.address}",
            "options": parse_options(KafkaOptions, values, owner="sink 'kafka'"),
            "encoder": SmallEncoder(EncoderContext(changefeed="feed", envelope=Envelope(), options=None)),
            "tables": (table_name(),),
        }
        return SinkContext(**(fields | changes))

    def destination(self, options: Options = None, /, **changes: Any) -> KafkaDestination:
        return self._open(KafkaDestination, options, changes)

    def sink(self, options: Options = None, /, **changes: Any) -> KafkaSink:
        """Create the topics and open a sink."""
        self.destination(options, **changes).prepare()
        return self._open(KafkaSink, options, changes)

    def resolved_sink(self, options: Options = None, /, **changes: Any) -> KafkaResolvedSink:
        """Create the topics and open a resolved sink."""
        self.destination(options, **changes).prepare()
        return self._open(KafkaResolvedSink, options, changes)

    def create_topic(self, partitions: int = 1, **settings: str) -> None:
        """Create the topic with the broker's own client. *settings* have `_` in place of dots."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        kafka_reading.create_topic(self.address, self.topic, partitions=partitions, replication=1, config=config)

    def add_partitions(self, total: int) -> None:
        kafka_reading.add_partitions(self.address, self.topic, total)

    def delete_topic(self) -> None:
        kafka_reading.delete_topic(self.address, self.topic)

    def received(self, topic: str | None = None) -> list[Message]:
        """Return all messages of a topic, by default `topic`, partition by partition."""
        messages = kafka_reading.read_topics(self.address, [topic or self.topic])
        return sorted(messages, key=lambda message: (message.partition, message.offset))

    def _open(self, part: type[Part], options: Options, changes: Mapping[str, Any]) -> Part:
        return self._opened.enter_context(closing(part(self.context(options, **changes))))
