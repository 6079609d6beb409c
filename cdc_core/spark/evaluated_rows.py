"""What Spark made of the columns layout, joined with what travelled beside it: the rows that a query gives."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.delivery.dead_letters import BadRow
from cdc_core.engine.packing import BESIDE, PIECE_BYTES, PIECES, REFUSED, ROWS, Arriving, unpack
from cdc_core.engine.refused_rows import invalid_texts
from cdc_core.errors import ContractError
from cdc_core.queries.arrow_evaluation import given_rows
from cdc_core.queries.bound_query import BoundQuery, QueryPlan
from cdc_core.rows import RowBatch, fields_by_name
from cdc_core.schema import Column
from cdc_core.spark.columns import FILLER, NO_PLAN
from cdc_core.telemetry.stages import QUERY

_CHANGES = "changes"
_AS_TEXT = "to show any bytes, write hex(…) or base64(…)"


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
                raise ContractError("engine: changes arrived before the columns that go with them")
            yield from _evaluated(value, _passed(value, beside), plans, deletes_as_rows=deletes_as_rows)
        else:
            yield kind, value
        del value  # a large one would stay while the pieces of the next are joined


def _divided(batches: Iterable[pa.RecordBatch]) -> Iterator[Arriving]:
    """Yield notes in the packed layout, and the changes of one plan as `changes`; between two batches is a note.

    Changes of one batch are joined again: an encoder takes much longer for them in parts.
    """
    held: list[pa.RecordBatch] = []
    held_bytes = 0

    def joined() -> Iterator[Arriving]:
        nonlocal held_bytes
        if held:
            changes, held_bytes = pa.concat_batches(held), 0
            held.clear()
            yield _CHANGES, changes

    for batch in batches:
        is_note = np.asarray(batch.column("kind").is_valid())  # a change may have become one: see `packed_columns`
        numbers = np.where(is_note, NO_PLAN, batch.column("plan").to_numpy())
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, end in pairwise(bounds):
            part = batch.slice(start, end - start)
            if start < end and numbers[start] == NO_PLAN:
                yield from joined()
                notes = part.select(["kind", "version", "payload"])
                if pc.index(notes.column("kind"), PIECES).as_py() >= 0:
                    yield BESIDE, None  # release a large one while the pieces of the next are joined
                yield notes.filter(pc.not_equal(notes.column("kind"), FILLER))
            elif start < end:
                held.append(part)
                held_bytes += part.nbytes
                if held_bytes > PIECE_BYTES:
                    yield from joined()
    yield from joined()


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
    reasons = dict[int, str]()
    computed: dict[str, pa.Array] = {}
    failed: dict[str, npt.NDArray[np.bool_]] = {}
    for index, (output, column) in enumerate(zip(query.outputs, schema.columns, strict=True)):
        if output.column:
            continue
        found = fields[f"c{index}"]
        if found.null_count:
            failed[output.name] = np.asarray(found.is_null())
            reasons.update(_failures(output.text, query, failed[output.name], fields.get(f"e{index}")))
        values = _restored(found.flatten()[0], column)
        if invalid := invalid_texts(values):
            values, mask = _without(values, invalid)
            failed[output.name] = mask | failed.get(output.name, False)
            reasons.update({index: _failure(output.text, f"{reason}; {_AS_TEXT}") for index, reason in invalid.items()})
        computed[output.name] = values
    texts = {
        "topic": query.topic and query.topic.text,
        "condition": query.condition and not query.decided and f"WHERE {query.condition.text}",
    }
    for name, text in texts.items():
        if text and fields[name].null_count:
            refused = np.asarray(fields[name].is_null())
            reasons.update(_failures(text, query, refused, fields.get(f"{name}_error")))
    rows = given_rows(
        passed,
        query,
        schema,
        deletes_as_rows=deletes_as_rows,
        computed=computed,
        failed=failed,
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
    return fields_by_name(changes.column(name)) if name in changes.schema.names else {}


def _failures(text: str, query: BoundQuery, failed: npt.NDArray[np.bool_], errors: pa.Array | None) -> dict[int, str]:
    """Return why the expression *text* failed, by index of the row. *errors* are those of its Python functions."""
    from cdc_core.queries.dialect import possible_causes  # loads the parser

    usual = possible_causes(text, query.schema)
    said = {} if errors is None else {index: errors[index].as_py() for index in np.flatnonzero(failed).tolist()}
    return {index: _failure(text, said.get(index) or usual) for index in np.flatnonzero(failed).tolist()}


def _failure(text: str, reason: str) -> str:
    return f"the query cannot compute {text}: {reason}"


def _without(values: pa.Array, indices: Collection[int]) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return *values* with nulls at *indices*, and where these are."""
    mask = np.zeros(len(values), np.bool_)
    mask[list(indices)] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, values.type), values), mask


def _restored(values: pa.Array, column: Column) -> pa.Array:
    """Return *values* as `RowBatch` has a column of this type."""
    return values if values.type == column.type.arrow else values.cast(column.type.arrow)
