"""A query bound to one version of its table: which columns it needs of each change, and the SQL over them. Picklable.

The SQL is Spark's, over the columns layout (`cdc_core.spark.columns`): the version's column `vN` has the fields `typed`
and `previous`, rows of the columns in Spark's types, with decimals as their texts. The columns `op`, `wall`, `logical`,
`mvcc_wall` and `mvcc_logical` are beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from cdc_core.function_registration import FunctionRegistration
from cdc_core.queries.masks import Mask
from cdc_core.restriction import Comparison
from cdc_core.rows import Op, RowBatch, fields_by_name
from cdc_core.schema import Column, ColumnType, TableSchema
from cdc_core.unavailable import unavailable_by_column, unavailable_column


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A column of the rows that a query gives: `column` of the table as it is, or the value of `sql`.

    `at` is the offset in the query, and `text` what is written there. `calls` are the columns of the Python functions'
    calls that the value is made of. With `row`, the value is the JSON of the row before the change.
    """

    name: str
    column: str = ""
    sql: str = ""
    text: str = ""
    at: int = 0
    calls: tuple[str, ...] = ()
    row: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCall:
    """A call of a Python function: the struct `column` has its `value` and its `error`.

    `arguments` are SQL, in which columns of calls before this one may stand. `text` is the call, written at offset `at`
    of the query, or the call there of a function of the changefeed that makes it.
    """

    column: str
    function: FunctionRegistration
    arguments: tuple[str, ...]
    text: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundQuery:
    """A query over version `schema` of its table, the *number*-th of the versions that its attempt knows.

    `typed` and `previous` are the columns that expressions use, of the row after and before the change. `calls` are
    those of Python functions, each after those in its arguments. `topic` gives the row's topic, and is not an output.
    """

    number: int
    text: str
    schema: TableSchema
    outputs: tuple[Output, ...]
    typed: tuple[str, ...]
    evaluated: tuple[str, ...]
    """Those of `typed` that Spark needs: none that only a decided condition uses."""
    conditional: tuple[str, ...]
    """Those of `typed` that the condition uses."""
    previous: tuple[str, ...]
    condition: Output | None
    calls: tuple[PythonCall, ...] = ()
    topic: Output | None = None
    comparisons: tuple[Comparison, ...] = ()
    """What the condition begins with: a row for which one is false does not meet it."""
    decided: bool = False
    """Whether the condition holds exactly where all `comparisons` do."""
    section: bool = False
    """Whether it is the section of a table: all outputs are columns under their own names."""
    diff: bool = False
    """Whether its rows have `before`, of the same columns."""
    masks: tuple[tuple[str, Mask], ...] = ()
    deletes_pass: bool = False
    """Whether the condition is not for deleted rows."""
    functions: tuple[str, ...] = ()
    """The names of the functions that it could call beside those of Spark."""

    @property
    def planned(self) -> bool:
        """Whether Spark plans it, and refuses what it cannot evaluate."""
        return not self.section or self.condition is not None

    @property
    def by_spark(self) -> bool:
        """Whether rows travel in the columns layout, for Spark to evaluate something."""
        undecided = self.condition is not None and not self.decided
        return undecided or self.topic is not None or bool(self.computed)

    @property
    def condition_sql(self) -> str:
        """The SQL of the condition as it is evaluated. There must be one."""
        assert self.condition is not None
        if not self.deletes_pass:
            return self.condition.sql
        return f"(CASE WHEN `op` = {Op.DELETE:d} THEN true ELSE (\n{self.condition.sql}\n) END)"

    @property
    def sql(self) -> Iterator[str]:
        """All SQL that Spark evaluates for rows."""
        yield from (output.sql for output in (*self.computed, *([] if self.topic is None else [self.topic])))
        yield from (argument for call in self.calls for argument in call.arguments)
        if self.condition is not None and not self.decided:
            yield self.condition_sql

    @property
    def masked(self) -> TableSchema:
        """The table's version, with the types of masked values."""
        masks = dict(self.masks)
        if not masks:
            return self.schema
        columns = (masks[each.name].column(each) if each.name in masks else each for each in self.schema.columns)
        return replace(self.schema, columns=tuple(columns))

    @property
    def raw(self) -> tuple[str, ...]:
        """The columns that are passed on as they are."""
        return tuple(dict.fromkeys(output.column for output in self.outputs if output.column))

    @property
    def passing(self) -> BoundQuery:
        """The section that delivers the columns which are passed on, and at least one: itself for a section."""
        if self.section:
            return self
        known = (column.name for column in self.schema.columns)
        names = self.raw or (min(known, key=lambda name: name not in self.schema.primary_key),)  # a key is small
        return replace(self, outputs=tuple(Output(name=name, column=name) for name in names))

    @property
    def previous_row(self) -> bool:
        return any(output.row for output in self.outputs)

    @property
    def computed(self) -> tuple[Output, ...]:
        return tuple(output for output in self.outputs if not output.column)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """A bound query that Spark has planned. `schema` has the columns of the rows that it gives."""

    query: BoundQuery
    schema: TableSchema


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
    # A column that only has the name and type of one of the key is not equal to it.
    key = tuple(column if column.name in passed else replace(column, nullable=False) for column in source.key_columns)
    return TableSchema(
        name=source.name,
        version=source.version,
        columns=columns,
        primary_key=source.primary_key,
        key=() if passed >= set(source.primary_key) else key,
    )


def delivered_rows(rows: RowBatch, query: BoundQuery, *, key: bytes) -> RowBatch:
    """Return *rows*, of the version of *query*, as its section delivers them: its columns, masked with *key*.

    Whether a row is delivered at all, the condition decides later. A row that becomes a dead letter shows no more.
    """
    target = replace(output_schema(query, {}), version=rows.schema.version)
    masks = dict(query.masks)

    def masked(structs: pa.StructArray, type_: pa.StructType, nulls: pa.Array | None = None) -> pa.StructArray:
        values = fields_by_name(structs)
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
