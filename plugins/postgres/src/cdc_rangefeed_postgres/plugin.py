"""Registers the PostgreSQL rangefeed."""

from collections.abc import Iterator

from cdc_core import RangefeedRegistration, hookimpl


@hookimpl
def cdc_register_rangefeeds() -> Iterator[RangefeedRegistration]:
    yield RangefeedRegistration(
        name="postgres",
        target="cdc_rangefeed_postgres.rangefeed:PostgresRangefeed",
        options="cdc_rangefeed_postgres.options:PostgresOptions",
        schemes=("postgresql", "postgres"),
        writer="cdc_rangefeed_postgres.writer:PostgresWriter",
        summary="PostgreSQL 14 to 18, by logical decoding",
    )
