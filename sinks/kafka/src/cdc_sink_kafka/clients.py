"""What the parts of the Kafka sink derive from their context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from cdc_core import CdcError, SinkContext
from cdc_sink_kafka.admin import Administrator
from cdc_sink_kafka.client_log import ClientLog
from cdc_sink_kafka.failures import Failure
from cdc_sink_kafka.headers import Headers
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.ordered_producer import OrderedProducer
from cdc_sink_kafka.producer_config import client_properties, producer_properties
from cdc_sink_kafka.topics import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options and topics of one changefeed, and the clients that it uses. Connects to nothing by itself."""

    context: SinkContext
    options: KafkaOptions
    topics: Topics

    @classmethod
    def of(cls, context: SinkContext) -> Self:
        """Return the settings of *context*."""
        options = context.options
        if not isinstance(options, KafkaOptions):
            raise TypeError(f"options must be KafkaOptions, not {type(options).__name__}")
        topics = Topics(context.topics(options.topic_prefix), name=options.topic_name)
        return cls(context=context, options=options, topics=topics)

    @property
    def topic_names(self) -> list[str]:
        """Every topic of the changefeed that a table names, each once: none when a query names them."""
        return [] if self.context.routed else self.topics.all(self.context.tables)

    @property
    def of_events(self) -> bool:
        """Whether messages are events, as in envelope `cloudevents`."""
        return self.context.encoder.context.events is not None

    def headers(self) -> Headers:
        """Return what makes the headers of messages. Raises: ConfigError."""
        return Headers(self.options, self.context.encoder.context.events)

    def client(self) -> dict[str, Any]:
        """Return the properties that every connection needs. Raises: ConfigError."""
        return client_properties(self.context.uri, self.options, changefeed=self.context.changefeed)

    def producer(self) -> dict[str, Any]:
        """Return the properties that a producer needs besides those of `client`. Raises: ConfigError."""
        return producer_properties(self.options)

    def administrator(self, *, running: bool = False) -> Administrator:
        """Return a new administrator, of a changefeed that is *running* or not. Raises: ConfigError."""
        return Administrator(self.client(), self.options, running=running)

    def open_producer(
        self,
        changes: dict[str, Any] | None = None,
        *,
        explain: Callable[[Failure], CdcError | None] | None = None,
        watch: Callable[[], None] | None = None,
    ) -> OrderedProducer:
        """Return a new producer. *changes* replace properties; *explain* and *watch* as for `OrderedProducer`."""
        return OrderedProducer(
            {**self.client(), **self.producer(), **(changes or {})},
            stall_s=self.options.flush_timeout,
            log=ClientLog(),
            explain=explain,
            watch=watch,
        )
