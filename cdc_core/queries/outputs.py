"""The rows that a bound query gives: their columns, and those of a section, which needs no expression for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from cdc_core.queries.bound_query import BoundQuery
from cdc_core.rows import RowBatch
from cdc_core.schema import Column, ColumnType, TableSchema
from cdc_core.unavailable import unavailable_by_column, unavailable_column

__all__ = ["delivered_rows", "output_schema"]


def output_schema(query: BoundQuery, computed: Mapping[str, ColumnType]) -> TableSchema:
    """Return the columns of the rows that *query* gives; *computed* has the types of its expressions by name."""
    source = query.masked
    columns = tuple(
        replace(source.column(output.column), name=output.name)
        if output.column
        else Column(name=output.name, type=computed[output.name])
        for output in query.outputs
    )
    passed = {output.name for output in query.outputs if output.column == output.name}
    hidden = () if passed >= set(source.primary_key) else source.key_columns
    return TableSchema(
        name=source.name, version=source.version, columns=columns, primary_key=source.primary_key, key=hidden
    )


def delivered_rows(rows: RowBatch, query: BoundQuery, *, key: bytes) -> RowBatch:
    """Return *rows*, of the version of *query*, as its section delivers them: its columns, masked with *key*.

    Whether a row is delivered at all, the condition decides later. A row that becomes a dead letter shows no more.
    """
    target = replace(output_schema(query, {}), version=rows.schema.version)
    masks = dict(query.masks)

    def masked(structs: pa.StructArray, type_: pa.StructType, nulls: pa.Array | None = None) -> pa.StructArray:
        values = dict(zip((field.name for field in structs.type), structs.flatten(), strict=True))
        for name in masks.keys() & values.keys():
            values[name] = masks[name].applied(values[name], rows.schema.column(name).type, key=key)
        return RowBatch.struct(type_, [values[field.name] for field in type_], nulls)

    images = {"after": rows.column("after")}
    if query.diff and rows.has_before:
        images["before"] = rows.column("before")
    lacking = {name: which for name, which in unavailable_by_column(rows).items() if name in query.raw}
    return RowBatch.of(
        target,
        op=rows.column("op"),
        updated=rows.column("updated"),
        mvcc=rows.column("mvcc") if "mvcc" in rows.batch.schema.names else None,
        key=masked(rows.column("key"), target.key_type),
        **{name: masked(image, target.after_type, image.is_null()) for name, image in images.items()},
        unavailable=unavailable_column(lacking) if lacking else None,
    )
