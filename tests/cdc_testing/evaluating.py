"""Queries over batches of rows, planned and evaluated by a real Spark without a changefeed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from cdc_core import FunctionRegistration, RowBatch, TableSchema
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.engine.packing import END, note, unpack
from cdc_core.engine.refused_rows import refused_row
from cdc_core.queries.binding import bind
from cdc_core.queries.bound_query import QueryPlan
from cdc_core.queries.statement import parse_query
from cdc_core.spark.columns import columns_schema, noted, packed_columns, spark_schema
from cdc_core.spark.evaluated_rows import opened
from cdc_core.spark.query_planning import evaluated, plan_query


def planned(
    session: SparkSession,
    text: str,
    *schemas: TableSchema,
    functions: Mapping[str, str] | None = None,
    installed: Sequence[FunctionRegistration] = (),
) -> list[QueryPlan]:
    """Return the query planned for versions of its table by *session*, a `query_session`. Raises: OptionError."""
    query = parse_query(text, tuple((functions or {}).items()), tuple(installed))
    return [plan_query(session, bind(query, schema, number=number)) for number, schema in enumerate(schemas)]


def answers(
    session: SparkSession, plans: Sequence[QueryPlan], *batches: RowBatch, deletes_as_rows: bool = True
) -> list[RowBatch | BadRow]:
    """Return what a writer gets for *batches*, in order; the note that ends a slice must come last."""
    queries = [plan.query for plan in plans]
    schema = columns_schema(queries)
    packed = [
        part
        for batch in batches
        for part in packed_columns(batch, queries=queries, schema=schema, deletes_as_rows=deletes_as_rows)
    ]
    packed = [noted(part, schema) for part in (*packed, note(END, {"slices": 1}))]
    frame = session.createDataFrame(pa.Table.from_batches(packed), spark_schema(queries)).coalesce(1)
    result = evaluated(frame, plans).toArrow().to_batches()
    *found, last = unpack(opened(result, plans, deletes_as_rows=deletes_as_rows))
    assert last == (END, {"slices": 1})
    return [refused_row(value) if isinstance(value, dict) else value for _, value in found]  # type: ignore[misc]
