"""What a changefeed selects, evaluated over batches of rows in the driver of a local Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.packing import ROWS, Arriving
from cdc_core.engine.planned_queries import PlannedQueries
from cdc_core.envelope import DeleteForm
from cdc_core.queries.binding import BoundQuery
from cdc_core.queries.outputs import delivered_rows
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.spark.columns import columns_schema, noted, opened, packed_columns, query_for
from cdc_core.spark.host import SparkHost

__all__ = ["SparkEvaluation"]

_USER = "watch"


class SparkEvaluation:
    """See `cdc_core.engine.temporary_run.Evaluation`. Spark starts when it has to plan something.

    *directory* is for Spark's log. Raises: ConfigError when there is no Java that Spark can run on.
    """

    def __init__(self, feed: ResolvedChangefeed, directory: Path) -> None:
        self._host = SparkHost(_USER, {}, state_dir=directory)
        self._queries = PlannedQueries(feed, self._host, hold=lambda: self._host.hold(_USER))
        self._selects, self._mask_key = feed.queries().selects, feed.mask_key
        self._deletes_as_rows = feed.envelope().delete is DeleteForm.KEY_AND_NULLS

    def delivered(self, schemas: Sequence[TableSchema]) -> Sequence[TableSchema]:
        return self._queries.delivered(schemas)

    def of(self, rows: RowBatch) -> Iterator[Arriving]:
        query = self._query_of(rows)
        if query is None or not query.by_spark:
            yield ROWS, self._delivered(rows, query)
            return
        plans = self._queries.plans([rows.schema])
        queries = [plan.query for plan in plans]
        schema, key = columns_schema(queries), self._mask_key
        packed = [noted(each, schema) for each in packed_columns(rows, queries=queries, schema=schema, mask_key=key)]
        if not packed:
            return
        batches = self._host.evaluate(pa.Table.from_batches(packed, schema), plans)
        yield from opened(batches, plans, deletes_as_rows=self._deletes_as_rows)

    def shown(self, rows: RowBatch) -> RowBatch:
        return self._delivered(rows, self._query_of(rows))

    def _query_of(self, rows: RowBatch) -> BoundQuery | None:
        if not self._selects(rows.schema.name):
            return None
        return query_for(rows, [plan.query for plan in self._queries.plans([rows.schema])])

    def _delivered(self, rows: RowBatch, query: BoundQuery | None) -> RowBatch:
        if query is None or not query.section:
            return rows
        return delivered_rows(rows, query, key=self._mask_key)

    def close(self) -> None:
        self._host.let_go(_USER)
