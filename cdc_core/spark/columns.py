"""The columns layout: how the changes of a table travel through Spark when a query is evaluated over them.

Each row of Spark is one change, or a note as in the packed layout (`cdc_core.engine.packing`), whose columns come
first. Of a change, `version` is that of its table. What follows belongs to changes:

    plan                      number of the table's version among those that the attempt knows; -1 for a note
    op                        an `Op`
    wall, logical             `updated`
    mvcc_wall, mvcc_logical   `mvcc`, null where the source does not know it
    unavailable               as in a `RowBatch`, null where it has none
    vN                        for version N, null for other changes: a struct of
        key                     the key as it is
        raw                     columns that are passed on as they are: dates and times as their numbers
        old                     the same columns before the change, for a section of a table with `diff`
        typed, previous         columns that expressions use, after and before the change, in Spark's types, but for
                                decimals, which are texts

Of a section of a table, `key`, `raw` and `old` are masked already; only what its condition uses is not. Tables that are
delivered whole, and sections without a condition, travel in the packed layout, as notes among the others.

A deleted row has its key in `raw` and `typed`, and nulls elsewhere, as in CockroachDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_core.delivery.dead_letters import BadRow
from cdc_core.engine.packing import REFUSED, ROWS, Arriving, divided, note, pack
from cdc_core.engine.row_limit import refusal_for
from cdc_core.errors import UnplannedSchemaError
from cdc_core.queries.binding import BoundQuery, QueryPlan
from cdc_core.queries.outputs import delivered_rows
from cdc_core.rows import TIMESTAMP_TYPE, UNAVAILABLE_TYPE, Op, RowBatch
from cdc_core.schema import Column, ColumnType, Kind, TableName, TableSchema
from cdc_core.spark.column_types import cast
from cdc_core.telemetry.stages import QUERY
from cdc_core.unavailable import unavailable_by_column, unavailable_column

__all__ = [
    "BATCH_ROWS",
    "ROW_BYTES",
    "columns_schema",
    "noted",
    "opened",
    "packed_columns",
    "query_for",
    "spark_schema",
]

_NOTE = [("kind", pa.string()), ("table", pa.string()), ("version", pa.int32()), ("payload", pa.binary())]
_CHANGE = [
    ("plan", pa.int32()),
    ("op", pa.int8()),
    ("wall", pa.int64()),
    ("logical", pa.int32()),
    ("mvcc_wall", pa.int64()),
    ("mvcc_logical", pa.int32()),
    ("unavailable", UNAVAILABLE_TYPE),
]
_NO_PLAN = -1
_FILLER = "filler"
ROW_BYTES = 16 * 1024
"""Spark collects `BATCH_ROWS` rows before it passes them to the writer, whatever their size: measuring them would take
longer than all else. So rows that are larger on average are followed by as many rows without content as they lack."""
BATCH_ROWS = 4096


def columns_schema(queries: Sequence[BoundQuery]) -> pa.Schema:
    """Return the columns that travel through Spark for *queries*, one for each version of a table that needs it."""
    versions = [(f"v{query.number}", _version_type(query)) for query in queries if query.by_spark]
    return pa.schema([*_NOTE, *_CHANGE, *versions])


def spark_schema(queries: Sequence[BoundQuery]) -> StructType:
    """Return `columns_schema` as Spark has it."""
    return from_arrow_schema(columns_schema(queries), prefer_timestamp_ntz=True)


def noted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a note of the packed layout in the columns of *schema*; any other batch as it is."""
    if batch.num_columns == len(schema):
        return batch
    rest = [pa.nulls(len(batch), field.type) for field in list(schema)[len(_NOTE) + 1 :]]
    plan = pa.repeat(pa.scalar(_NO_PLAN, pa.int32()), len(batch))
    return pa.RecordBatch.from_arrays([*batch.columns, plan, *rest], schema=schema)


def packed_columns(
    rows: RowBatch,
    *,
    queries: Sequence[BoundQuery],
    schema: pa.Schema,
    selects: Callable[[TableName], bool] = lambda _: True,
    mask_key: bytes = b"",
) -> Iterator[pa.RecordBatch]:
    """Yield *rows* in the columns of *schema*; a row that lacks a value which the query uses becomes a `refused` note.

    Rows of a table of which nothing is selected are packed whole, and those of a section without a condition as it
    delivers them; *selects* tells the tables apart.

    Raises: UnplannedSchemaError when *rows* have a version of their table that is not among *queries*.
    """
    if not selects(rows.schema.name):
        yield from _packed(rows, schema)
        return
    query = query_for(rows, queries)
    if not query.by_spark:
        yield from _packed(delivered_rows(rows, query, key=mask_key), schema)
        return
    for part in divided(rows):
        delivered = delivered_rows(part, query, key=mask_key) if query.section else part
        bad = _incomplete(part, query)
        start = 0
        for index in (*sorted(bad), len(part)):
            if index > start:
                yield _batch(part.slice(start, index - start), delivered.slice(start, index - start), query, schema)
            if index < len(part):
                refused = refusal_for(delivered.slice(index, 1), bad[index], stage=QUERY)
                yield noted(note(REFUSED, refused), schema)
            start = index + 1
        yield from _fillers(part.nbytes // ROW_BYTES - len(part), schema)


def query_for(rows: RowBatch, queries: Sequence[BoundQuery]) -> BoundQuery:
    """Return that of *queries* which is bound to the version of *rows*. Raises: UnplannedSchemaError."""
    query = next((query for query in queries if query.schema.has_shape_of(rows.schema)), None)
    if query is None:
        raise UnplannedSchemaError(
            f"table {rows.schema.name} has another version than the query is planned for; it is planned again",
            schema=rows.schema.to_json(),
        )
    return query


def _packed(rows: RowBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield *rows* in the packed layout, each row of Spark followed by as many fillers as it is too large."""
    for packed in pack(rows):
        yield noted(packed, schema)
        yield from _fillers(packed.nbytes // ROW_BYTES - 1, schema)


def _fillers(count: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if count > 0:
        columns = [
            pa.repeat(pa.scalar(_FILLER, pa.string()), count),
            *(pa.nulls(count, type_) for _, type_ in _NOTE[1:]),
        ]
        yield noted(pa.RecordBatch.from_arrays(columns, names=[name for name, _ in _NOTE]), schema)


def opened(
    batches: Iterable[pa.RecordBatch], plans: Sequence[QueryPlan], *, deletes_as_rows: bool
) -> Iterator[Arriving]:
    """Yield what the query made of each batch: notes in the packed layout, and (kind, rows).

    Of a deleted row, `after` has what the query gives for it if *deletes_as_rows*; otherwise it is null. A row of which
    an expression failed is yielded by itself, as a bad row.
    """
    for batch in batches:
        numbers, versions = batch.column("plan").to_numpy(), pc.fill_null(batch.column("version"), 0).to_numpy()
        changes = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(versions) != 0))
        bounds = [0, *(changes + 1).tolist(), len(numbers)]
        for start, end in pairwise(bounds):
            if start == end:
                continue
            part = batch.slice(start, end - start)
            if numbers[start] == _NO_PLAN:
                notes = part.select([name for name, _ in _NOTE])
                yield notes.filter(pc.not_equal(notes.column("kind"), _FILLER))
            else:
                plan = _of_version(plans[numbers[start]], int(versions[start]))
                yield from _evaluated(part, plan, deletes_as_rows=deletes_as_rows)


def _of_version(plan: QueryPlan, version: int) -> QueryPlan:
    """Return *plan* for rows of another version of the table that has the same columns."""
    return plan if plan.schema.version == version else replace(plan, schema=replace(plan.schema, version=version))


def _typed_as(type_: ColumnType) -> pa.DataType:
    """Return the type in which a column that expressions use travels. Decimals are cast from text by the expression."""
    return pa.string() if type_.kind is Kind.TIME else type_.arrow  # by default Spark has no type for times of day


def _raw_type(type_: pa.DataType) -> pa.DataType:
    """Return the type in which a column that is passed on travels: Spark has not all times, and not all their years."""
    if pa.types.is_date(type_):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(type_) or pa.types.is_time(type_) else type_


def _version_type(query: BoundQuery) -> pa.StructType:
    schema, delivered = query.schema, query.masked
    raw = [(name, _raw_type(delivered.column(name).type.arrow)) for name in query.raw]
    fields = {
        "key": [(column.name, _raw_type(column.type.arrow)) for column in delivered.key_columns],
        "raw": raw,
        "old": raw if query.diff else [],
        "typed": [(name, _typed_as(schema.column(name).type)) for name in query.typed],
        "previous": [(name, _typed_as(schema.column(name).type)) for name in query.previous],
    }
    structs = [(name, pa.struct(inner)) for name, inner in fields.items() if inner]
    return pa.struct(structs)


def _version(rows: RowBatch, delivered: RowBatch, query: BoundQuery) -> pa.StructArray:
    """Return the column of the version, of *rows* that are *delivered* so: themselves for a query."""
    type_ = _version_type(query)
    images = _images(rows)
    passed = images if delivered is rows else _images(delivered)
    columns = {
        "key": [_viewed(values) for values in delivered.column("key").flatten()],
        "raw": [_viewed(passed[name]) for name in query.raw],
        "typed": [cast(images[name], _typed_as(rows.schema.column(name).type)) for name in query.typed],
    }
    arrays = {name: RowBatch.struct(type_.field(name).type, inner) for name, inner in columns.items() if inner}
    if query.diff:
        old = _before(delivered)
        arrays["old"] = RowBatch.struct(type_.field("old").type, list(map(_viewed, old.flatten())), old.is_null())
    if query.previous:
        before = _before(rows)
        values = _by_name(before)
        inner = [cast(values[name], _typed_as(rows.schema.column(name).type)) for name in query.previous]
        arrays["previous"] = RowBatch.struct(type_.field("previous").type, inner, before.is_null())
    return RowBatch.struct(type_, [arrays[field.name] for field in type_])


def _images(rows: RowBatch) -> dict[str, pa.Array]:
    """Return the columns of `after`, of a deleted row its key and nulls."""
    after = rows.column("after")
    images = _by_name(after)
    if after.null_count:
        for name, values in _by_name(rows.column("key")).items():
            if name in images:
                images[name] = pc.coalesce(images[name], values)
    return images


def _before(rows: RowBatch) -> pa.StructArray:
    return rows.column("before") if rows.has_before else pa.nulls(len(rows), rows.schema.after_type)


def _by_name(structs: pa.StructArray) -> dict[str, pa.Array]:
    return dict(zip((field.name for field in structs.type), structs.flatten(), strict=True))


def _incomplete(rows: RowBatch, query: BoundQuery) -> dict[int, str]:
    """Return why the query cannot be evaluated for some rows, by their index: the source did not send a value."""
    return {
        int(index): (
            f"the query uses column {name}, which an update left unchanged and its source did not send; run ALTER TABLE"
            f" {rows.schema.name} REPLICA IDENTITY FULL for later rows"
        )
        for name, lacking in unavailable_by_column(rows).items()
        if name in query.typed
        for index in np.flatnonzero(lacking)
    }


def _viewed(values: pa.Array) -> pa.Array:
    return values.view(_raw_type(values.type)) if _raw_type(values.type) != values.type else values


def _batch(rows: RowBatch, delivered: RowBatch, query: BoundQuery, schema: pa.Schema) -> pa.RecordBatch:
    length = len(rows)
    wall, logical = rows.column("updated").flatten()
    has_mvcc = "mvcc" in rows.batch.schema.names
    mvcc = rows.column("mvcc").flatten() if has_mvcc else (pa.nulls(length, wall.type), pa.nulls(length, logical.type))
    columns: dict[str, pa.Array] = {
        "kind": pa.repeat(pa.scalar(ROWS, pa.string()), length),
        "version": pa.repeat(pa.scalar(rows.schema.version, pa.int32()), length),
        "plan": pa.repeat(pa.scalar(query.number, pa.int32()), length),
        "op": rows.column("op").cast(pa.int8()),
        "wall": wall,
        "logical": logical,
        "mvcc_wall": mvcc[0],
        "mvcc_logical": mvcc[1],
        f"v{query.number}": _version(rows, delivered, query),
    }
    if delivered.has_unavailable:
        columns["unavailable"] = delivered.column("unavailable")
    arrays = [columns[field.name] if field.name in columns else pa.nulls(length, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _evaluated(
    batch: pa.RecordBatch, plan: QueryPlan, *, deletes_as_rows: bool
) -> Iterator[tuple[str, RowBatch | BadRow]]:
    """Yield the rows that the query gave: see `cdc_core.spark.query_planning` for the columns."""
    query, schema = plan.query, plan.schema
    result = batch.column(f"o{query.number}")
    fields = _by_name(result)
    raw = fields.get("raw")
    unknown = _unknown(batch, query)
    arrays, reasons = [], dict[int, str]()
    lacking: dict[str, npt.NDArray[np.bool_]] = {}
    for index, (output, column) in enumerate(zip(query.outputs, schema.columns, strict=True)):
        if output.column:
            assert raw is not None
            arrays.append(_restored(raw.field(query.raw.index(output.column)), column))
            if output.column in unknown:
                lacking[column.name] = unknown[output.column]
            continue
        computed = fields[f"c{index}"]
        if computed.null_count:
            lacking[column.name] = failed = np.asarray(computed.is_null())
            reasons.update(_failures(output.text, failed, fields.get(f"e{index}")))
        arrays.append(_restored(computed.flatten()[0], column))
    texts = {
        "topic": query.topic and query.topic.text,
        "condition": query.condition and f"WHERE {query.condition.text}",
    }
    for name, text in texts.items():
        if text and fields[name].null_count:
            failed = np.asarray(fields[name].is_null())
            reasons.update(_failures(text, failed, fields.get(f"{name}_error")))
    op = batch.column("op").cast(pa.uint8())
    mask = None if deletes_as_rows else pc.equal(op, pa.scalar(int(Op.DELETE), pa.uint8()))
    key = [_restored(values, each) for values, each in zip(fields["key"].flatten(), schema.key_columns, strict=True)]
    mvcc = None
    if batch.column("mvcc_wall").null_count < len(batch):
        mvcc = _timestamps(batch.column("mvcc_wall"), batch.column("mvcc_logical"))
    rows = RowBatch.of(
        schema,
        op=op,
        updated=_timestamps(batch.column("wall"), batch.column("logical")),
        mvcc=mvcc,
        key=RowBatch.struct(schema.key_type, key),
        after=RowBatch.struct(schema.after_type, arrays, mask),
        before=_old(fields["old"], schema) if query.diff else None,
        unavailable=unavailable_column(lacking) if lacking else None,
        topic=None if query.topic is None else fields["topic"].flatten()[0].cast(pa.string()),
    )
    start = 0
    for index in sorted(reasons):
        if index > start:
            yield ROWS, rows.slice(start, index - start)
        yield REFUSED, BadRow(row=rows.slice(index, 1), stage=QUERY, reason=reasons[index])
        start = index + 1
    if start < len(rows):
        yield ROWS, rows.slice(start)


def _old(old: pa.StructArray, schema: TableSchema) -> pa.StructArray:
    """Return the column `before` of a section's rows."""
    arrays = [_restored(values, column) for values, column in zip(old.flatten(), schema.columns, strict=True)]
    return RowBatch.struct(schema.after_type, arrays, old.is_null())


def _unknown(batch: pa.RecordBatch, query: BoundQuery) -> dict[str, npt.NDArray[np.bool_]]:
    """Return the columns of the table that are unavailable in some rows, and in which."""
    column = batch.column("unavailable")
    if column.null_count == len(batch):
        return {}
    named = {name for names in column.to_pylist() if names for name in names}
    return {
        name: np.array([name in (names or ()) for names in column.to_pylist()]) for name in query.raw if name in named
    }


def _failures(text: str, failed: npt.NDArray[np.bool_], errors: pa.Array | None) -> dict[int, str]:
    """Return why the expression *text* failed, by index of the row. *errors* are those of its Python functions."""
    usual = "a division by zero, a cast that failed, or a number out of range"
    said = {} if errors is None else {index: errors[index].as_py() for index in np.flatnonzero(failed).tolist()}
    return {
        index: f"the query cannot compute {text}: {said.get(index) or usual}"
        for index in np.flatnonzero(failed).tolist()
    }


def _timestamps(wall: pa.Array, logical: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays([wall, logical], fields=list(TIMESTAMP_TYPE))


def _restored(values: pa.Array, column: Column) -> pa.Array:
    """Return *values* as `RowBatch` has a column of this type."""
    type_ = column.type.arrow
    if values.type == type_:
        return values
    if values.type == _raw_type(type_):
        return values.view(type_)
    return values.cast(type_)
