"""How the rows of a task travel through Spark when a query is evaluated over them: see `cdc_core.spark.columns`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from cdc_core.engine.attempt import Attempt, Task
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.packing import Arriving
from cdc_core.envelope import DeleteForm
from cdc_core.queries.bound_query import BoundQuery, delivered_rows
from cdc_core.rows import RowBatch
from cdc_core.spark.columns import columns_schema, noted, packed_columns, query_for
from cdc_core.spark.evaluated_rows import opened

WRITER = "writer"
"""The column that says which task writes a row, where reading tasks do not write what they read."""


def read(attempt: Attempt, number: int, task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the slice of *task* in the layout that the attempt's query needs; exchanged rows also say who writes."""
    config, schema, how = attempt.config, None, {}
    if config.plans:
        queries = [plan.query for plan in config.plans]
        schema = columns_schema(queries) if config.evaluates else None
        how = _evaluating(config, queries, schema)
    for writer, batch in attempt.read(number, task, **how):
        given = batch if schema is None else noted(batch, schema)
        if config.exchanges:
            given = given.append_column(WRITER, pa.repeat(pa.scalar(writer, pa.int32()), len(given)))
        yield given


def _evaluating(config: AttemptConfig, queries: Sequence[BoundQuery], schema: pa.Schema | None) -> dict[str, Any]:
    """Return how `Attempt.read` gives rows to *queries*, and shows them."""
    selects, key = config.feed.queries().selects, config.feed.mask_key

    def shown(rows: RowBatch) -> RowBatch:
        query = query_for(rows, queries) if selects(rows.schema.name) else None
        return delivered_rows(rows, query, key=key) if query is not None and query.section else rows

    packed = partial(
        packed_columns,
        queries=queries,
        schema=schema,
        selects=selects,
        mask_key=key,
        deletes_as_rows=_deletes_as_rows(config),
    )
    return {"pack": packed, "shown": shown}


def arriving(attempt: Attempt, batches: Iterable[pa.RecordBatch]) -> Iterable[Arriving]:
    """Return what arrives for `Attempt.write`, which guards it, opened if it has the columns layout."""
    config = attempt.config
    if config.evaluates:
        return opened(batches, config.plans, deletes_as_rows=_deletes_as_rows(config))
    return batches


def _deletes_as_rows(config: AttemptConfig) -> bool:
    return config.feed.envelope().delete is DeleteForm.KEY_AND_NULLS
