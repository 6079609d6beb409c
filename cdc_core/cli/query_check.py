"""The check of a query: by Spark, which a check starts for nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.planned_queries import PlannedQueries
from cdc_core.errors import ConfigError
from cdc_core.schema import TableSchema

__all__ = ["selected"]

_USER = "check"


def selected(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> Sequence[TableSchema]:
    """Return the columns that the query of *feed* gives for tables with *schemas*; takes some seconds.

    Raises: ConfigError when it cannot be evaluated, or Spark is not installed.
    """
    try:
        from cdc_core.spark.host import SparkHost
    except ImportError as error:
        if (error.name or "").partition(".")[0] in ("pyspark", "py4j"):
            raise ConfigError("checking a query needs Spark: pip install 'cdc-core[spark]'") from error
        raise
    with TemporaryDirectory(prefix="cdc-check-", ignore_cleanup_errors=True) as directory:
        host = SparkHost(_USER, {}, state_dir=Path(directory))
        try:
            return PlannedQueries(feed, host, hold=lambda: host.hold(_USER)).delivered(schemas)
        finally:
            host.let_go(_USER)
