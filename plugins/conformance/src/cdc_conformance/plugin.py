"""Registers the simulated database."""

from collections.abc import Iterator

from cdc_core import RangefeedRegistration, hookimpl

SIMULATED = RangefeedRegistration(
    name="simulated",
    rangefeed="cdc_conformance.simulated.rangefeed:SimulatedRangefeed",
    planner="cdc_conformance.simulated.planner:SimulatedPlanner",
    reader="cdc_conformance.simulated.reader:SimulatedReader",
    history="cdc_conformance.simulated.rangefeed:SimulatedHistory",
    options="cdc_conformance.simulated.source:SimulatedOptions",
    repeats_steps=True,
    cursors=True,
    replicas=True,
    temporary=True,
    schemes=("simulated",),
    summary="A simulated database for tests, in a file",
    writer="cdc_conformance.simulated.writer:SimulatedWriter",
)


@hookimpl
def cdc_register_rangefeeds() -> Iterator[RangefeedRegistration]:
    yield SIMULATED
