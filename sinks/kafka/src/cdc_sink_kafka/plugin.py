"""Registers the Kafka sink."""

from collections.abc import Iterator

from cdc_core import SinkRegistration, hookimpl


@hookimpl
def cdc_register_sinks() -> Iterator[SinkRegistration]:
    yield SinkRegistration(
        name="kafka",
        target="cdc_sink_kafka.sink:KafkaSink",
        options="cdc_sink_kafka.options:KafkaOptions",
        schemes=("kafka", "confluent-cloud", "azure-event-hub"),
        output="messages",
        summary="Topics of Apache Kafka, with resolved marks in every partition",
        reader="cdc_sink_kafka.reader:KafkaReader",
    )
