"""Registers the Kafka sink."""

from collections.abc import Iterator

from cdc_core import SinkRegistration, hookimpl


@hookimpl
def cdc_register_sinks() -> Iterator[SinkRegistration]:
    yield SinkRegistration(
        name="kafka",
        sink="cdc_sink_kafka.sink:KafkaSink",
        resolved_sink="cdc_sink_kafka.resolved_sink:KafkaResolvedSink",
        destination="cdc_sink_kafka.destination:KafkaDestination",
        options="cdc_sink_kafka.options:KafkaOptions",
        schemes=("kafka", "confluent-cloud", "azure-event-hub"),
        output="messages",
        envelopes=frozenset({"wrapped", "bare", "row", "key_only", "enriched", "cloudevents"}),
        routes=True,
        summary="Apache Kafka topics, with resolved marks in every partition",
        reader="cdc_sink_kafka.reader:KafkaReader",
    )
