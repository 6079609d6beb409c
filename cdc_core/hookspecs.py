"""The hooks that a plugin may implement. This module holds nothing else.

A plugin is a module published under the entry-point group `cdc_core.plugins`:

    [project.entry-points."cdc_core.plugins"]
    my_package = "my_package.plugin"

Its hooks only describe components. They are called once, when the plugin host loads, and must not import client
libraries.
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from cdc_core.function_registration import FunctionRegistration
from cdc_core.registrations import EncoderRegistration, RangefeedRegistration
from cdc_core.sink_registration import SinkRegistration

PROJECT = "cdc_core"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def cdc_register_rangefeeds() -> Iterable[RangefeedRegistration]:  # type: ignore[empty-body]
    """Return the sources that this plugin supplies.

    @hookimpl
    def cdc_register_rangefeeds():
        yield RangefeedRegistration(
            name="postgres", schemes=("postgresql", "postgres"), summary="PostgreSQL logical decoding",
            rangefeed="cdc_rangefeed_postgres.rangefeed:PostgresRangefeed",
            planner="cdc_rangefeed_postgres.planner:PostgresPlanner",
            reader="cdc_rangefeed_postgres.reader:PostgresReader",
            history="cdc_rangefeed_postgres.history:PostgresHistory",
            options="cdc_rangefeed_postgres.options:PostgresOptions",
        )
    """


@hookspec
def cdc_register_encoders() -> Iterable[EncoderRegistration]:  # type: ignore[empty-body]
    """Return the encoders that this plugin supplies.

    @hookimpl
    def cdc_register_encoders():
        yield EncoderRegistration(
            name="json", summary="JSON messages, newline-delimited JSON files",
            encoder="cdc_encoder_json.encoder:JsonEncoder", options="cdc_encoder_json.options:JsonOptions",
            envelopes=frozenset({"wrapped"}), outputs=frozenset({"messages", "files"}),
        )
    """


@hookspec
def cdc_register_sinks() -> Iterable[SinkRegistration]:  # type: ignore[empty-body]
    """Return the sinks that this plugin supplies.

    @hookimpl
    def cdc_register_sinks():
        yield SinkRegistration(
            name="kafka", schemes=("kafka",), output="messages", summary="Apache Kafka",
            sink="cdc_sink_kafka.sink:KafkaSink",
            resolved_sink="cdc_sink_kafka.resolved_sink:KafkaResolvedSink",
            destination="cdc_sink_kafka.destination:KafkaDestination",
            options="cdc_sink_kafka.options:KafkaOptions",
        )
    """


@hookspec
def cdc_register_functions() -> Iterable[FunctionRegistration]:  # type: ignore[empty-body]
    """Return the Python functions that this plugin supplies for queries.

    @hookimpl
    def cdc_register_functions():
        yield FunctionRegistration(
            name="distance_km", summary="distance between two places on Earth",
            function="my_package.places:distance_km", arguments=(pa.float64(),) * 4, returns=pa.float64(),
            deterministic=True,
        )
    """
