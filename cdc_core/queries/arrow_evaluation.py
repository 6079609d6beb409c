"""What of a query Arrow evaluates, over whole batches: comparisons with constants, and columns that are passed on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.queries.bound_query import BoundQuery
from cdc_core.queries.query import EVENT_OP
from cdc_core.restriction import Comparison
from cdc_core.rows import Op, RowBatch, fields_by_name
from cdc_core.schema import TableSchema
from cdc_core.unavailable import unavailable_by_column, unavailable_column

_OPERATORS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_EVENTS = pa.array([None, *("insert" if op is Op.SCAN else op.name.lower() for op in sorted(Op))])
"""The values of `event_op()` by `Op`."""


def images(rows: RowBatch) -> dict[str, pa.Array]:
    """Return the columns of `after`, of a deleted row its key and nulls."""
    after = rows.column("after")
    found = fields_by_name(after)
    if after.null_count:
        for name, values in fields_by_name(rows.column("key")).items():
            if name in found:
                found[name] = pc.coalesce(found[name], values)
    return found


def candidates(rows: RowBatch, query: BoundQuery) -> RowBatch:
    """Return *rows*, of the version of *query*, without those that its comparisons refuse.

    What is left is what meets the condition if `query.decided`. A comparison of a value that a row lacks may hold.
    """
    if not query.comparisons or not len(rows):
        return rows
    columns = images(rows)
    if any(comparison.column == EVENT_OP for comparison in query.comparisons):
        columns[EVENT_OP] = _EVENTS.take(rows.column("op"))
    lacking, kept = unavailable_by_column(rows), None
    for comparison in query.comparisons:
        possible = pc.fill_null(_held(columns[comparison.column], comparison), not query.decided)
        if comparison.column in lacking:
            possible = pc.or_(possible, pa.array(lacking[comparison.column]))
        kept = possible if kept is None else pc.and_(kept, possible)
    if query.deletes_pass:
        kept = pc.or_(kept, pc.equal(rows.column("op"), pa.scalar(int(Op.DELETE), pa.uint8())))
    if pc.all(kept).as_py():
        return rows
    return RowBatch(schema=rows.schema, batch=rows.batch.filter(kept))


def given_rows(
    passed: RowBatch,
    query: BoundQuery,
    schema: TableSchema,
    *,
    deletes_as_rows: bool,
    computed: Mapping[str, pa.Array] = MappingProxyType({}),
    failed: Mapping[str, npt.NDArray[np.bool_]] = MappingProxyType({}),
    topic: pa.StringArray | None = None,
) -> RowBatch:
    """Return the rows, of *schema*, that *query* gives for *passed*, which has the columns of `query.passing`.

    *computed* has the values of expressions by the names of outputs, and *failed* says where there are none. Of a
    deleted row, `after` has what the query gives for it if *deletes_as_rows*; otherwise it is null.
    """
    columns, unknown = images(passed), unavailable_by_column(passed)
    arrays, lacking = [], dict[str, npt.NDArray[np.bool_]]()
    for output in query.outputs:
        arrays.append(columns[output.column] if output.column else computed[output.name])
        mask = unknown.get(output.column) if output.column else failed.get(output.name)
        if mask is not None:
            lacking[output.name] = mask
    op, before = passed.column("op"), None
    if query.diff:
        before = passed.column("before") if passed.has_before else pa.nulls(len(passed), schema.after_type)
    mask = None if deletes_as_rows else pc.equal(op, pa.scalar(int(Op.DELETE), pa.uint8()))
    return RowBatch.of(
        schema,
        op=op,
        updated=passed.column("updated"),
        mvcc=passed.column("mvcc") if "mvcc" in passed.batch.schema.names else None,
        key=passed.column("key"),
        after=RowBatch.struct(schema.after_type, arrays, mask),
        before=before,
        unavailable=unavailable_column(lacking) if lacking else None,
        topic=topic,
    )


def _held(values: pa.Array, comparison: Comparison) -> pa.BooleanArray:
    """Return where *comparison* holds, null where it is null."""
    if not comparison.values:
        return values.is_null() if comparison.operator == "is null" else values.is_valid()
    type_ = pa.int64() if pa.types.is_integer(values.type) else values.type  # constants may be larger than the column
    if comparison.operator != "in":
        return _OPERATORS[comparison.operator](values, pa.scalar(comparison.values[0], type_))
    found = pc.is_in(values.cast(type_), value_set=pa.array(comparison.values, type_))
    return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.bool_()))
