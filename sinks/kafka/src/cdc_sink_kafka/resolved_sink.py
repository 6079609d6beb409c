"""The part of the Kafka sink that runs in the coordinator: it writes resolved marks."""

from __future__ import annotations

from collections.abc import Collection

from cdc_core import ResolvedSink, SinkContext, TerminalSinkError, Timestamp
from cdc_sink_kafka.clients import Settings
from cdc_sink_kafka.ordered_producer import OrderedProducer
from cdc_sink_kafka.partitions import Partitions
from cdc_sink_kafka.topic_deletion_check import TopicDeletionCheck


class KafkaResolvedSink(ResolvedSink):
    """Writes each resolved mark, a message without a key, to every partition of every topic of the changefeed.

    The partitions are looked up for each mark: a partition that is added later gets the next mark.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._settings = Settings.of(context)
        self._topics = TopicDeletionCheck(self._settings)
        self._producer: OrderedProducer | None = None
        self._partitions: Partitions | None = None
        self._routed: set[str] = set()
        self._closed = False

    def add_topics(self, topics: Collection[str]) -> None:
        """Write later marks to *topics* as well. One that was deleted while the changefeed did not run is created."""
        new = {self._settings.topics.routed(topic) for topic in topics} - self._routed
        if not new:
            return
        try:
            with self._settings.administrator(running=True) as administrator:
                administrator.prepare(sorted(new))
        except TerminalSinkError as error:
            raise TerminalSinkError(
                f"a resolved mark cannot be written: {error}", repairable=error.repairable
            ) from None
        self._topics.add(new, seen=False)
        self._routed |= new

    def emit_resolved(self, timestamp: Timestamp) -> None:
        """Return when every partition that a topic of the changefeed has now holds the mark, without a key."""
        if self._closed:
            raise TerminalSinkError("the Kafka sink is closed")
        if self._producer is None or self._partitions is None:
            self._producer = self._settings.open_producer(explain=self._topics.explain, watch=self._topics.check)
            self._partitions = Partitions(self._producer, watch=self._topics.check)
        self._topics.check()
        headers = self._settings.headers().of_mark(timestamp)
        names = [*self._settings.topic_names, *sorted(self._routed)]
        for topic, partitions in self._partitions.of(names).items():
            payload = self.context.encoder.encode_resolved(topic, timestamp)
            for partition in partitions:
                self._producer.send_one(topic, value=payload, partition=partition, headers=headers)
        self._producer.flush()

    def close(self) -> None:
        """Release the connection. Does not wait for brokers."""
        self._partitions = None  # before the producer: `close_in_background` needs the only reference to the client
        if self._producer is not None:
            self._producer.close()
        self._topics.close()
        self._producer = None
        self._closed = True
