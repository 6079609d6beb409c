"""The query of a changefeed, evaluated over batches of rows in the driver of a local Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.packing import Arriving
from cdc_core.engine.planned_queries import PlannedQueries
from cdc_core.envelope import DeleteForm
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.spark.columns import columns_schema, noted, opened, packed_columns
from cdc_core.spark.host import SparkHost

__all__ = ["SparkEvaluation"]

_USER = "watch"


class SparkEvaluation:
    """See `cdc_core.engine.temporary_run.Evaluation`. Spark starts when the first rows or tables come.

    *directory* is for Spark's log. Raises: ConfigError when there is no Java that Spark can run on.
    """

    def __init__(self, feed: ResolvedChangefeed, directory: Path) -> None:
        self._host = SparkHost(_USER, {}, state_dir=directory)
        self._queries = PlannedQueries(feed, self._host, hold=lambda: self._host.hold(_USER))
        self._deletes_as_rows = feed.envelope().delete is DeleteForm.KEY_AND_NULLS

    def delivered(self, schemas: Sequence[TableSchema]) -> Sequence[TableSchema]:
        return self._queries.delivered(schemas)

    def of(self, rows: RowBatch) -> Iterator[Arriving]:
        plans = self._queries.plans([rows.schema])
        queries = [plan.query for plan in plans]
        schema = columns_schema(queries)
        packed = [noted(batch, schema) for batch in packed_columns(rows, queries=queries, schema=schema)]
        if not packed:
            return
        batches = self._host.evaluate(pa.Table.from_batches(packed, schema), plans)
        yield from opened(batches, plans, deletes_as_rows=self._deletes_as_rows)

    def close(self) -> None:
        self._host.let_go(_USER)
