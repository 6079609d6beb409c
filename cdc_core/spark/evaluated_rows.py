"""What Spark made of the columns layout, joined with what travelled beside it: the rows that a query gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.delivery.dead_letters import BadRow
from cdc_core.engine.packing import BESIDE, PIECES, REFUSED, ROWS, Arriving, unpack
from cdc_core.errors import ContractError
from cdc_core.queries.bound_query import BoundQuery, QueryPlan
from cdc_core.rows import Op, RowBatch
from cdc_core.schema import Column, TableSchema
from cdc_core.spark.columns import FILLER, NO_PLAN, images
from cdc_core.telemetry.stages import QUERY
from cdc_core.unavailable import unavailable_by_column, unavailable_column

_CHANGES = "changes"


def opened(
    batches: Iterable[pa.RecordBatch], plans: Sequence[QueryPlan], *, deletes_as_rows: bool
) -> Iterator[Arriving]:
    """Yield what the query made of each batch, as (kind, value): see `unpack`.

    Of a deleted row, `after` has what the query gives for it if *deletes_as_rows*; otherwise it is null. A row of which
    an expression failed is yielded by itself, as a bad row.
    """
    beside: RowBatch | None = None
    for kind, value in unpack(_divided(batches)):
        if kind == BESIDE:
            beside = value
        elif kind == _CHANGES:
            if beside is None:
                raise ContractError("engine: changes arrived before the columns beside them")
            yield from _evaluated(value, _passed(value, beside), plans, deletes_as_rows=deletes_as_rows)
        else:
            yield kind, value
        del value  # a large one would stay while the pieces of the next are joined


def _divided(batches: Iterable[pa.RecordBatch]) -> Iterator[Arriving]:
    """Yield notes in the packed layout, and the changes of one plan as `changes`; between two batches is a note."""
    for batch in batches:
        numbers = batch.column("plan").to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, end in pairwise(bounds):
            part = batch.slice(start, end - start)
            if start < end and numbers[start] == NO_PLAN:
                notes = part.select(["kind", "version", "payload"])
                if pc.index(notes.column("kind"), PIECES).as_py() >= 0:
                    yield BESIDE, None  # let go of a large one while the pieces of the next are joined
                yield notes.filter(pc.not_equal(notes.column("kind"), FILLER))
            elif start < end:
                yield _CHANGES, part


def _passed(changes: pa.RecordBatch, beside: RowBatch) -> RowBatch:
    """Return those rows of *beside* that are left of it."""
    positions = changes.column("position").to_numpy()
    first, last = int(positions[0]), int(positions[-1])
    if last - first + 1 == len(positions):  # they rise
        return beside.slice(first, len(positions))
    return RowBatch(schema=beside.schema, batch=beside.batch.take(changes.column("position")))


def _evaluated(
    changes: pa.RecordBatch, passed: RowBatch, plans: Sequence[QueryPlan], *, deletes_as_rows: bool
) -> Iterator[tuple[str, RowBatch | BadRow]]:
    """Yield the rows that the query gave: see `cdc_core.spark.query_planning` for the columns."""
    plan = _of_version(plans[changes.column("plan")[0].as_py()], passed.schema.version)
    query, schema = plan.query, plan.schema
    fields = _fields(changes, query)
    columns, unknown = images(passed), unavailable_by_column(passed)
    arrays, reasons = [], dict[int, str]()
    lacking: dict[str, npt.NDArray[np.bool_]] = {}
    for index, (output, column) in enumerate(zip(query.outputs, schema.columns, strict=True)):
        if output.column:
            arrays.append(columns[output.column])
            if output.column in unknown:
                lacking[column.name] = unknown[output.column]
            continue
        computed = fields[f"c{index}"]
        if computed.null_count:
            lacking[column.name] = failed = np.asarray(computed.is_null())
            reasons.update(_failures(output.text, query, failed, fields.get(f"e{index}")))
        arrays.append(_restored(computed.flatten()[0], column))
    texts = {
        "topic": query.topic and query.topic.text,
        "condition": query.condition and f"WHERE {query.condition.text}",
    }
    for name, text in texts.items():
        if text and fields[name].null_count:
            failed = np.asarray(fields[name].is_null())
            reasons.update(_failures(text, query, failed, fields.get(f"{name}_error")))
    op = passed.column("op")
    mask = None if deletes_as_rows else pc.equal(op, pa.scalar(int(Op.DELETE), pa.uint8()))
    rows = RowBatch.of(
        schema,
        op=op,
        updated=passed.column("updated"),
        mvcc=passed.column("mvcc") if "mvcc" in passed.batch.schema.names else None,
        key=passed.column("key"),
        after=RowBatch.struct(schema.after_type, arrays, mask),
        before=_before(passed, schema) if query.diff else None,
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


def _of_version(plan: QueryPlan, version: int) -> QueryPlan:
    """Return *plan* for rows of another version of the table that has the same columns."""
    return plan if plan.schema.version == version else replace(plan, schema=replace(plan.schema, version=version))


def _fields(changes: pa.RecordBatch, query: BoundQuery) -> dict[str, pa.Array]:
    """Return by name what Spark computed; nothing where the query only passes columns on."""
    name = f"o{query.number}"
    if name not in changes.schema.names:
        return {}
    column = changes.column(name)
    return dict(zip((field.name for field in column.type), column.flatten(), strict=True))


def _before(rows: RowBatch, schema: TableSchema) -> pa.StructArray:
    return rows.column("before") if rows.has_before else pa.nulls(len(rows), schema.after_type)


def _failures(text: str, query: BoundQuery, failed: npt.NDArray[np.bool_], errors: pa.Array | None) -> dict[int, str]:
    """Return why the expression *text* failed, by index of the row. *errors* are those of its Python functions."""
    from cdc_core.queries.dialect import possible_causes  # loads the parser

    usual = possible_causes(text, query.schema)
    said = {} if errors is None else {index: errors[index].as_py() for index in np.flatnonzero(failed).tolist()}
    return {
        index: f"the query cannot compute {text}: {said.get(index) or usual}"
        for index in np.flatnonzero(failed).tolist()
    }


def _restored(values: pa.Array, column: Column) -> pa.Array:
    """Return *values* as `RowBatch` has a column of this type."""
    return values if values.type == column.type.arrow else values.cast(column.type.arrow)
