"""Registers the PostgreSQL rangefeed."""

from collections.abc import Iterator

from cdc_core import RangefeedRegistration, hookimpl


@hookimpl
def cdc_register_rangefeeds() -> Iterator[RangefeedRegistration]:
    yield RangefeedRegistration(
        name="postgres",
        schemes=("postgresql", "postgres"),
        rangefeed="cdc_rangefeed_postgres.rangefeed:PostgresRangefeed",
        planner="cdc_rangefeed_postgres.planner:PostgresPlanner",
        reader="cdc_rangefeed_postgres.reader:PostgresReader",
        history="cdc_rangefeed_postgres.history:PostgresHistory",
        options="cdc_rangefeed_postgres.options:PostgresOptions",
        writer="cdc_rangefeed_postgres.writer:PostgresWriter",
        repeats_steps=True,
        changes_tables=True,
        cursors=True,
        temporary=True,
        summary="PostgreSQL 14 to 18, by logical decoding",
    )
