"""What must hold of a changefeed's parts before it runs, and how its destination is made ready."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from cdc_core.job import Job
from cdc_core.schema import TableSchema

__all__ = ["check_encoder", "check_sink", "check_source", "prepare_sink"]


def check_source(job: Job) -> list[TableSchema]:
    """Return the tables that the source will be read for. Raises: ConfigError when it cannot be."""
    with closing(job.open_rangefeed()) as rangefeed:
        rangefeed.check()
        return list(rangefeed.schemas())


def check_encoder(job: Job, schemas: Sequence[TableSchema]) -> None:
    """Return when rows of *schemas* can be encoded. Raises: ConfigError when they cannot."""
    with closing(_for_tables(job, schemas).open_sink()) as sink:
        job.open_encoder().check([(sink.payload(schema), sink.topic(schema.name)) for schema in schemas])


def check_sink(job: Job, schemas: Sequence[TableSchema]) -> None:
    """Return when the destination can take rows of *schemas*. Raises: ConfigError when it cannot."""
    with closing(_for_tables(job, schemas).open_sink()) as sink:
        sink.check()


def prepare_sink(job: Job, schemas: Sequence[TableSchema]) -> None:
    """Create at the destination what rows of *schemas* need and the options allow.

    Raises: ConfigError, RetryableError.
    """
    with closing(_for_tables(job, schemas).open_sink()) as sink:
        sink.prepare()


def _for_tables(job: Job, schemas: Sequence[TableSchema]) -> Job:
    return job.with_run(feed_id=job.feed_id, epoch=job.epoch, table_names=[schema.name for schema in schemas])
