"""The check of a query: by Spark, which a check starts for nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.planned_queries import PlannedQueries
from cdc_core.errors import ConfigError
from cdc_core.schema import TableSchema

if TYPE_CHECKING:
    from cdc_core.spark.host import SparkHost

__all__ = ["plans_of", "selected"]

_USER = "check"


def selected(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> Sequence[TableSchema]:
    """Return the columns that the query of *feed* gives for tables with *schemas*; takes some seconds.

    Raises: ConfigError when it cannot be evaluated, or Spark is not installed.
    """
    with _spark() as host:
        return PlannedQueries(feed, host, hold=lambda: host.hold(_USER)).delivered(schemas)


def plans_of(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> Sequence[str]:
    """Return Catalyst's plans of the query of *feed* for tables with *schemas*. Raises: as `selected`."""
    with _spark() as host:
        host.hold(_USER)
        plans = PlannedQueries(feed, host, hold=lambda: None).plans(schemas)
        return [host.explain(plan.query) for plan in plans]


@contextmanager
def _spark() -> Iterator[SparkHost]:
    try:
        from cdc_core.spark.host import SparkHost
    except ImportError as error:
        if (error.name or "").partition(".")[0] in ("pyspark", "py4j"):
            raise ConfigError("checking a query needs Spark: pip install 'cdc-core[spark]'") from error
        raise
    with TemporaryDirectory(prefix="cdc-check-", ignore_cleanup_errors=True) as directory:
        host = SparkHost(_USER, {}, state_dir=Path(directory))
        try:
            yield host
        finally:
            host.let_go(_USER)
