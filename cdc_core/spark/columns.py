"""The columns layout: how the changes of a table travel through Spark when a query is evaluated over them.

Only what expressions use becomes rows of Spark. The columns that are passed on travel before them, a batch as one
value that the JVM never opens: a note of the kind `beside`, with the rows as a `RowBatch` has them. The changes that
follow are its rows, in order; `position` says which, as a condition leaves some out.

Each row of Spark is one change, or a note as in the packed layout (`cdc_core.engine.packing`), whose columns but the
table come first. What follows belongs to changes:

    plan                      number of the table's version among those that the attempt knows; -1 for a note
    position                  index of the row in the batch beside it
    op                        an `Op`
    wall, logical             `updated`
    mvcc_wall, mvcc_logical   `mvcc`, null where the source does not know it; like the three before, if an expression
                              uses it
    vN                        for version N, null for other changes: a struct of
        typed, previous         columns that expressions use, after and before the change, in Spark's types, but for
                                decimals, which are texts
        previous_row            the whole row before the change as JSON, if the query delivers it

Of a section of a table, what travels beside is masked already; only what its condition uses is not. Tables that are
delivered whole, and sections without a condition, travel in the packed layout, as notes among the others.

A deleted row has its key in `typed`, and nulls elsewhere, as in CockroachDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_core.engine.packing import BESIDE, REFUSED, divided, note, pack
from cdc_core.engine.refused_rows import refusal_for
from cdc_core.errors import UnplannedSchemaError
from cdc_core.queries.arrow_evaluation import candidates, given_rows, images
from cdc_core.queries.bound_query import BoundQuery, delivered_rows, output_schema
from cdc_core.rows import RowBatch, fields_by_name
from cdc_core.schema import ColumnType, Kind, TableName, TableSchema
from cdc_core.spark.column_types import cast, row_texts, short_times
from cdc_core.telemetry.stages import QUERY
from cdc_core.unavailable import unavailable_by_column

_NOTE = [("kind", pa.string()), ("version", pa.int32()), ("payload", pa.binary())]
_CHANGE = [
    ("plan", pa.int32()),
    ("position", pa.int32()),
    ("op", pa.int8()),
    ("wall", pa.int64()),
    ("logical", pa.int32()),
    ("mvcc_wall", pa.int64()),
    ("mvcc_logical", pa.int32()),
]
NO_PLAN = -1
FILLER = "filler"
ROW_BYTES = 16 * 1024
"""Spark collects `BATCH_ROWS` rows before it passes them to the writer, whatever their size: measuring them would take
longer than all else. So rows that are larger on average are followed by as many rows without content as they lack."""
BATCH_ROWS = 4096


def columns_schema(queries: Sequence[BoundQuery]) -> pa.Schema:
    """Return the columns that travel through Spark for *queries*, one for each version that expressions use."""
    evaluated = [query for query in queries if query.by_spark]
    sql = "".join(text for query in evaluated for text in query.sql)
    change = [field for field in _CHANGE if field[0] in ("plan", "position") or f"`{field[0]}`" in sql]
    versions = [(f"v{query.number}", _version_type(query)) for query in evaluated if _uses(query)]
    return pa.schema([*_NOTE, *change, *versions])


def spark_schema(queries: Sequence[BoundQuery]) -> StructType:
    """Return `columns_schema` as Spark has it."""
    return from_arrow_schema(columns_schema(queries), prefer_timestamp_ntz=True)


def noted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return notes, which may have the packed layout, in the columns of *schema*; any other batch as it is."""
    if "plan" in batch.schema.names:
        return batch
    rest = [pa.nulls(len(batch), field.type) for field in list(schema)[len(_NOTE) + 1 :]]
    plan = pa.repeat(pa.scalar(NO_PLAN, pa.int32()), len(batch))
    columns = (batch.column(name) for name, _ in _NOTE)
    return pa.RecordBatch.from_arrays([*columns, plan, *rest], schema=schema)


def packed_columns(
    rows: RowBatch,
    *,
    queries: Sequence[BoundQuery],
    schema: pa.Schema | None,
    selects: Callable[[TableName], bool] = lambda _: True,
    mask_key: bytes = b"",
    deletes_as_rows: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield *rows* in the columns of *schema*; a row that lacks a value which the query uses becomes a `refused` note.

    It also is a change if only Spark can tell whether the condition, which does not use the value, leaves the row out.
    Without a *schema*, Spark evaluates nothing for any of *queries*, and everything is a note in the packed layout.
    Rows of tables that *selects* refuses are packed whole. Where Spark evaluates nothing for a table, its rows are
    packed as they are delivered; `given_rows` explains *deletes_as_rows*.

    Raises: UnplannedSchemaError when *rows* have a version of their table that is not among *queries*.
    """
    if not selects(rows.schema.name):
        yield from _spread(pack(rows), schema)
        return
    query = query_for(rows, queries)
    left = candidates(rows, query)
    for part in divided(left) if query.by_spark else (left,):
        passed = delivered_rows(part, query.passing, key=mask_key)
        changes = None
        if query.by_spark:
            assert schema is not None
            yield from _spread(pack(passed, BESIDE), schema)
            changes = _changes(part, query, schema)
        bad, undecided = _incomplete(part, query), query.condition is not None and not query.decided
        start = 0
        for index in (*sorted(bad), len(part)):
            if index > start and changes is not None:
                yield changes.slice(start, index - start)
            elif index > start:
                given = _given(passed.slice(start, index - start), query, deletes_as_rows=deletes_as_rows)
                yield from _spread(pack(given), schema)
            if index < len(part):
                column, reason = bad[index]
                shown = passed if query.section else part
                refused = note(REFUSED, refusal_for(shown.slice(index, 1), reason, stage=QUERY))
                if changes is not None and undecided and column not in query.conditional:
                    refused = _with_note(changes.slice(index, 1), refused)
                yield from _spread([refused], schema)
            start = index + 1
        if changes is not None:
            assert schema is not None
            yield from _fillers(changes.nbytes // ROW_BYTES - len(part), schema)


def _given(passed: RowBatch, query: BoundQuery, *, deletes_as_rows: bool) -> RowBatch:
    """Return what *query*, of which Spark evaluates nothing, gives for *passed*."""
    if query.condition is None and query.section:
        return passed
    schema = replace(output_schema(query, {}), version=passed.schema.version)
    return given_rows(passed, query, schema, deletes_as_rows=deletes_as_rows)


def query_for(rows: RowBatch, queries: Sequence[BoundQuery]) -> BoundQuery:
    """Return that of *queries* which is bound to the version of *rows*. Raises: UnplannedSchemaError."""
    query = next((query for query in queries if query.schema.has_shape_of(rows.schema)), None)
    if query is None:
        raise UnplannedSchemaError(
            f"table {rows.schema.name} has a different version than the query was planned for; planning it again",
            schema=rows.schema.to_json(),
        )
    return query


def _spread(packed: Iterable[pa.RecordBatch], schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """Yield what has the packed layout in *schema*, each row followed by as many fillers as it is too large."""
    if schema is None:
        yield from packed
        return
    for each in packed:
        yield noted(each, schema)
        yield from _fillers(each.nbytes // ROW_BYTES - 1, schema)


def _fillers(count: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if count > 0:
        columns = {name: pa.nulls(count, type_) for name, type_ in _NOTE}
        columns["kind"] = pa.repeat(pa.scalar(FILLER, pa.string()), count)
        yield noted(pa.record_batch(columns), schema)


def _typed_as(type_: ColumnType) -> pa.DataType:
    """Return the type in which a column that expressions use travels. Decimals are cast from text by the expression."""
    return pa.string() if type_.kind is Kind.TIME else type_.arrow  # by default Spark has no type for times of day


def _uses(query: BoundQuery) -> bool:
    """Return whether expressions use columns of the table."""
    return bool(query.evaluated or query.previous or query.previous_row)


def _version_type(query: BoundQuery) -> pa.StructType:
    used = {"typed": query.evaluated, "previous": query.previous}
    fields = [
        (image, pa.struct([(name, _typed_as(query.schema.column(name).type)) for name in names]))
        for image, names in used.items()
        if names
    ]
    return pa.struct([*fields, *([("previous_row", pa.string())] if query.previous_row else [])])


def _version(rows: RowBatch, query: BoundQuery) -> pa.StructArray:
    """Return the column of the version."""
    type_ = _version_type(query)
    arrays = []
    if query.evaluated:
        arrays.append(_typed(images(rows), rows.schema, query.evaluated, type_.field("typed").type))
    before = rows.column("before") if rows.has_before else pa.nulls(len(rows), rows.schema.after_type)
    if query.previous:
        wanted, nulls = type_.field("previous").type, before.is_null()
        arrays.append(_typed(fields_by_name(before), rows.schema, query.previous, wanted, nulls))
    if query.previous_row:
        arrays.append(row_texts(before, rows.schema))
    return RowBatch.struct(type_, arrays)


def _typed(
    values: Mapping[str, pa.Array],
    schema: TableSchema,
    names: Sequence[str],
    type_: pa.StructType,
    nulls: pa.Array | None = None,
) -> pa.StructArray:
    """Return the columns *names* in Spark's types."""
    arrays = [cast(values[name], _typed_as(schema.column(name).type)) for name in names]
    times = (schema.column(name).type.kind is Kind.TIME for name in names)
    shown = [short_times(array) if is_time else array for array, is_time in zip(arrays, times, strict=True)]
    return RowBatch.struct(type_, shown, nulls)


def _incomplete(rows: RowBatch, query: BoundQuery) -> dict[int, tuple[str, str]]:
    """Return why the query cannot be evaluated for some rows, by their index: a column that the source did not send.

    It is one of the condition, if that uses any of them. With each is the reason as a sentence.
    """
    lacking = {name: mask for name, mask in unavailable_by_column(rows).items() if name in query.typed}
    return {
        int(index): (
            name,
            f"the query uses column {name}, which an update left unchanged and its source did not send; run ALTER TABLE"
            f" {rows.schema.name} REPLICA IDENTITY FULL for later rows",
        )
        for name in sorted(lacking, key=query.conditional.__contains__)
        for index in np.flatnonzero(lacking[name])
    }


def _with_note(change: pa.RecordBatch, refused: pa.RecordBatch) -> pa.RecordBatch:
    """Return *change* as a note that Spark leaves out unless the condition holds for it, or fails."""
    columns = (refused if name in ("kind", "payload") else change for name in change.schema.names)
    arrays = (batch.column(name) for batch, name in zip(columns, change.schema.names, strict=True))
    return pa.RecordBatch.from_arrays(list(arrays), schema=change.schema)


def _changes(rows: RowBatch, query: BoundQuery, schema: pa.Schema) -> pa.RecordBatch:
    """Return what expressions use of *rows*, and their positions."""
    length = len(rows)
    wall, logical = rows.column("updated").flatten()
    columns: dict[str, pa.Array] = {
        "plan": pa.repeat(pa.scalar(query.number, pa.int32()), length),
        "position": pa.array(np.arange(length, dtype=np.int32)),
        "op": rows.column("op").cast(pa.int8()),
        "wall": wall,
        "logical": logical,
    }
    if "mvcc" in rows.batch.schema.names:
        columns["mvcc_wall"], columns["mvcc_logical"] = rows.column("mvcc").flatten()
    if _uses(query):
        columns[f"v{query.number}"] = _version(rows, query)
    arrays = [columns[field.name] if field.name in columns else pa.nulls(length, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
