"""How the rows of a task travel through Spark when a query is evaluated over them: see `cdc_core.spark.columns`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa

from cdc_core.engine.attempt import Attempt, Task
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.packing import Arriving
from cdc_core.envelope import DeleteForm
from cdc_core.queries.bound_query import delivered_rows
from cdc_core.rows import RowBatch
from cdc_core.spark.columns import columns_schema, noted, packed_columns, query_for
from cdc_core.spark.evaluated_rows import opened

WRITER = "writer"
"""The column that says which task writes a row, where reading tasks do not write what they read."""


def read(attempt: Attempt, number: int, task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the slice of *task* in the layout that the attempt's query needs; exchanged rows also say who writes."""
    for writer, batch in _read(attempt, number, task):
        if not attempt.config.exchanges:
            yield batch
        else:
            yield batch.append_column(WRITER, pa.repeat(pa.scalar(writer, pa.int32()), len(batch)))


def _read(attempt: Attempt, number: int, task: Task) -> Iterator[tuple[int, pa.RecordBatch]]:
    config = attempt.config
    if not config.plans:
        yield from attempt.read(number, task)
        return
    queries = [plan.query for plan in config.plans]
    schema = columns_schema(queries) if config.evaluates else None
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
    for writer, batch in attempt.read(number, task, pack=packed, shown=shown):
        yield writer, batch if schema is None else noted(batch, schema)


def arriving(attempt: Attempt, batches: Iterable[pa.RecordBatch]) -> Iterator[Arriving]:
    """Yield what arrives for `Attempt.write`, which guards it, opened if it has the columns layout."""
    config = attempt.config
    if config.evaluates:
        yield from opened(batches, config.plans, deletes_as_rows=_deletes_as_rows(config))
    else:
        yield from batches


def _deletes_as_rows(config: AttemptConfig) -> bool:
    return config.feed.envelope().delete is DeleteForm.KEY_AND_NULLS
