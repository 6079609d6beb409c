"""The part of the Kafka sink that runs before any row: it checks the brokers and creates topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pyarrow as pa

from cdc_core import ConfigError, Destination, MessageBatch, RowBatch, SinkContext, TableName, TableSchema
from cdc_sink_kafka.admin import NO_ID
from cdc_sink_kafka.clients import Settings
from cdc_sink_kafka.tombstones import deleted_rows, with_tombstones

_ON_THE_WAY_S = 10.0
_NO_TOPIC = "cdc-check"
"""A name for topics that a query could give, to have their settings checked."""


class KafkaDestination(Destination):
    """Checks brokers and topics, and creates missing topics."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._settings = Settings.of(context)

    def check(self) -> None:
        """Return when the brokers answer and every topic exists or can be created. Raises: ConfigError, in seconds."""
        if self.context.routed:
            self._settings.topics.check_routed()
        else:
            self._settings.topics.check(self.context.tables)
        self._check_tombstones()
        self._settings.headers()
        with self._settings.administrator() as administrator:
            administrator.check(self._settings.producer(), self._settings.topic_names)
            if self.context.routed:
                administrator.check_creation(self._settings.topics.routed(_NO_TOPIC))

    def prepare(self) -> None:
        """Create the missing topics, if `create_kafka_topics` is explicit."""
        with self._settings.administrator() as administrator:
            administrator.prepare(self._settings.topic_names)

    def identities(self, topics: Collection[str] = ()) -> Mapping[str, str | None]:
        """Return the ids of the topics, as far as the brokers tell them."""
        names = {*self._settings.topic_names, *map(self._settings.topics.routed, topics)}
        with self._settings.administrator() as administrator:
            found = administrator.topic_ids(sorted(names))
        return {f"topic '{topic}'": identity for topic, identity in found.items() if identity != NO_ID}

    def topic(self, table: TableName) -> str:
        """Return the topic of *table*: prefix and name, or `topic_name`, escaped as CockroachDB does."""
        return self._settings.topics.of(table)

    def topic_of(self, rows: RowBatch) -> str:
        """Return the topic of *rows*: that which a query gave them, with the prefix, otherwise that of their table."""
        return self._settings.topics.of_rows(rows)

    def _check_tombstones(self) -> None:
        column = self.context.encoder.context.key_column
        if self._settings.options.tombstones_on_delete and column is not None:
            raise ConfigError(
                f"sink 'kafka': tombstones_on_delete with key_column '{column}' would remove other rows with the same"
                " value from a compacted topic; remove one of the two options"
            )

    def longest_call_s(self) -> float:
        """Return flush_timeout, and the time in which brokers take in what was on its way to them."""
        return self._settings.options.flush_timeout + _ON_THE_WAY_S

    def payload(self, schema: TableSchema) -> TableSchema:
        """Return *schema* without the column whose entries become headers."""
        return self._settings.headers().shape(schema)

    def preview(self, rows: RowBatch) -> MessageBatch:
        """Return the messages with their headers, and tombstones behind those of deleted rows if that is chosen."""
        headers = self._settings.headers()
        batch = self.context.encoder.encode(headers.payload(rows), topic=self.topic_of(rows))
        found = headers.of(rows, batch)
        if self._settings.options.tombstones_on_delete and (deleted := deleted_rows(rows, batch)) is not None:
            batch, found = with_tombstones(batch, found, deleted, of_events=self._settings.of_events)
        if found is None:
            return batch
        return replace(batch, headers=pa.array(found, pa.map_(pa.string(), pa.binary())))
