"""Registers the null sink."""

from collections.abc import Iterator

from cdc_core import SinkRegistration, hookimpl


@hookimpl
def cdc_register_sinks() -> Iterator[SinkRegistration]:
    yield SinkRegistration(
        name="null",
        sink="cdc_sink_null.sink:NullSink",
        resolved_sink="cdc_sink_null.sink:NullResolvedSink",
        destination="cdc_sink_null.sink:NullDestination",
        options="cdc_sink_null.options:NullOptions",
        schemes=("null",),
        output="messages",
        summary="Delivers nothing: encodes messages and discards them, to measure a changefeed",
        envelopes=frozenset({"wrapped", "bare", "row", "key_only", "enriched", "cloudevents"}),
        refuses_rows=False,
    )
