"""Registers the simulated database."""

from collections.abc import Iterator

from cdc_core import RangefeedRegistration, hookimpl


@hookimpl
def cdc_register_rangefeeds() -> Iterator[RangefeedRegistration]:
    yield RangefeedRegistration(
        name="simulated",
        target="cdc_conformance.simulated.rangefeed:SimulatedRangefeed",
        options="cdc_conformance.simulated.options:SimulatedOptions",
        schemes=("simulated",),
        summary="A simulated database for tests, in a file",
        writer="cdc_conformance.simulated.writer:SimulatedWriter",
    )
