"""The check of a query: by Spark, which a check starts for nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.planned_queries import PlannedQueries, check_query
from cdc_core.plugins.classes import needing
from cdc_core.schema import TableName, TableSchema

if TYPE_CHECKING:
    from cdc_core.spark.host import SparkHost

_USER = "check"


def selected(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> Sequence[TableSchema]:
    """Return the columns that *feed* delivers of tables with *schemas*; takes some seconds if Spark has to plan.

    Raises: ConfigError when it cannot be evaluated, or Spark is not installed.
    """
    with _spark() as host:
        return PlannedQueries(feed, host, acquire=lambda: host.acquire(_USER)).delivered(schemas)


def plans_of(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> Mapping[TableName, Sequence[str]]:
    """Return Catalyst's plans of what *feed* selects, by table, where Spark evaluates it. Raises: as `selected`."""
    check_query(feed, schemas)
    with _spark() as host:
        host.acquire(_USER)
        found: dict[TableName, list[str]] = {}
        for plan in PlannedQueries(feed, host, acquire=lambda: None).plans(schemas):
            if plan.query.by_spark:
                found.setdefault(plan.schema.name, []).append(host.explain(plan.query))
        return found


@contextmanager
def _spark() -> Iterator[SparkHost]:
    with needing("pyspark", "py4j", otherwise="checking a query needs Spark: pip install 'cdc-core[spark]'"):
        from cdc_core.spark.host import SparkHost
    with TemporaryDirectory(prefix="cdc-check-", ignore_cleanup_errors=True) as directory:
        host = SparkHost(_USER, {}, state_dir=Path(directory), temporary=True)
        try:
            yield host
        finally:
            host.release(_USER)
