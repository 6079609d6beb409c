"""Queries planned by Catalyst, Spark's optimizer, and evaluated over the columns layout (`cdc_core.spark.columns`).

An expression that fails for a row must not end the query: each is evaluated in `try`, and gives null where it failed.
Spark's functions never return a null struct, so that a null means nothing else.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from cdc_core.delivery.called_function import CalledFunction
from cdc_core.queries.bound_query import BoundQuery, Output, PythonCall, QueryPlan, output_schema
from cdc_core.queries.query import TOPIC_COLUMN
from cdc_core.queries.refusals import refusal
from cdc_core.schema import ColumnType, Kind
from cdc_core.spark.columns import BATCH_ROWS, spark_schema
from cdc_core.spark.infinite_times import as_json, with_infinities
from cdc_core.spark.private_api import (
    JavaObject,
    Py4JJavaError,
    analyzed,
    can_up_cast,
    generate_code,
    items,
    optimized,
    tried,
    tried_value,
    written_out,
)
from cdc_core.spark.python_functions import call_fields, called
from cdc_core.spark.query_refusals import named, reason_of, unusable

for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    logging.getLogger(_name).disabled = True
"""Pyspark would print what the analyzer refuses, as JSON; the user gets a sentence."""

_SETTINGS = {
    # Changes are rows here, and travel many at a time. Without the largest number, each row's batch is measured again.
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # It casts infinities, which fails.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.UnwrapCastInBinaryComparison",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.jsonGenerator.ignoreNullFields": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.session.timeZone": "UTC",
}
_MANY_ROWS = {
    **dict.fromkeys(("Aggregate", "Window"), "it combines many rows, but a query sees one change at a time"),
    "Generate": "it returns several rows for one, but a change is one message",
}
_SIMPLE: dict[type[DataType], ColumnType] = {
    BooleanType: ColumnType(kind=Kind.BOOL, source="boolean"),
    ByteType: ColumnType(kind=Kind.INT, source="smallint", bits=16),
    ShortType: ColumnType(kind=Kind.INT, source="smallint", bits=16),
    IntegerType: ColumnType(kind=Kind.INT, source="integer", bits=32),
    LongType: ColumnType(kind=Kind.INT, source="bigint", bits=64),
    FloatType: ColumnType(kind=Kind.FLOAT, source="real", bits=32),
    DoubleType: ColumnType(kind=Kind.FLOAT, source="double precision", bits=64),
    BinaryType: ColumnType(kind=Kind.BYTES, source="binary"),
    DateType: ColumnType(kind=Kind.DATE, source="date"),
    TimestampType: ColumnType(kind=Kind.TIMESTAMPTZ, source="timestamp with time zone"),
    TimestampNTZType: ColumnType(kind=Kind.TIMESTAMP, source="timestamp without time zone"),
}
_TEXT = ColumnType(kind=Kind.STRING, source="text")
_JSON = ColumnType(kind=Kind.JSON, source="json")
_CALL = re.compile(r"\(CASE WHEN `(f\d+_\d+)`\.`error` .*? raise_error\(`\1`\.`error`\) END\)")
_PLAN_NAMES = (
    (re.compile(r"v\d+#\d+\.previous(?:_row)?\b"), "cdc_prev"),
    (re.compile(r"(?:v\d+#\d+\.typed|passed#\d+)\."), ""),
    (re.compile(r"#\d+L?\b"), ""),
    (re.compile(r"CASE WHEN isnull\((f\d+_\d+)\.error\) .*? map\(errorMessage, \1\.error\).*? END"), r"\1"),
)
"""What of the columns layout stands in Catalyst's plans, and what queries call it."""


def query_session(session: SparkSession) -> SparkSession:
    """Return a session of the same application for queries, with settings of its own."""
    own = session.newSession()
    for name, value in _SETTINGS.items():
        own.conf.set(name, value)
    return own


def plan_query(session: SparkSession, query: BoundQuery) -> QueryPlan:
    """Return *query* planned by *session*, a `query_session`. Runs nothing.

    Raises: OptionError for an expression that Spark refuses or that does not give the same value each time, and for a
    condition that no row can meet.
    """
    rows = _empty(session, query)
    for call in query.calls:
        _check_call(rows, query, call)
    computed = {output.name: _type_of(rows, query, output) for output in query.computed}
    if query.topic is not None and (type_ := _type_of(rows, query, query.topic)) != _TEXT:
        reason = f"{TOPIC_COLUMN} must be text, but {query.topic.text} has the type {type_.source}; cast it to STRING"
        raise refusal(query.text, query.topic.at, reason)
    if query.condition is not None:
        _check_condition(rows, query, query.condition)
    plan = QueryPlan(query=query, schema=output_schema(query, computed))
    if any("'" in sql for sql in query.sql):  # it has a text, which can be a pattern
        _check_patterns(rows, plan)
    return plan


def _empty(session: SparkSession, query: BoundQuery, *, passed: bool = False) -> DataFrame:
    """Return the columns that the SQL of *query* is written for, without rows; with *passed*, those passed on, too."""
    whole = replace(query, evaluated=query.typed, decided=False)
    schema = StructType([*spark_schema([whole]).fields, *call_fields(query)])
    if passed:
        schema.add("passed", StructType([StructField(name, NullType()) for name in query.raw]))
    return session.createDataFrame(session.sparkContext.emptyRDD(), schema)


def _check_call(rows: DataFrame, query: BoundQuery, call: PythonCall) -> None:
    """Return when the function of *call* can be loaded and accepts the arguments.

    Raises: PluginLoadError; OptionError for an argument of another type.
    """
    CalledFunction(call.function)
    for number, (sql, wanted) in enumerate(zip(call.arguments, call.function.arguments, strict=True), start=1):
        type_ = _selected(rows, query, Output(name="", sql=sql, text=call.text, at=call.at)).schema[0].dataType
        expected = from_arrow_type(wanted, prefer_timestamp_ntz=True)
        if not _accepts(rows, expected, type_):
            raise refusal(
                query.text,
                call.at,
                f"argument {number} of {call.function.name} has the type {type_.simpleString()}, but the function "
                f"takes {expected.simpleString()}; cast it",
            )


def _check_patterns(rows: DataFrame, plan: QueryPlan) -> None:
    """Return when Spark can read all patterns of dates and of LIKE, as it does for rows. Raises: OptionError."""
    query = plan.query
    values = [(output, _value(rows, output, plan)) for output in query.computed]
    values += [(output, f.expr(_on_one_line(output.sql))) for output in (query.topic, query.condition) if output]

    def check(*values: Column) -> None:
        # As in `evaluated`, within a condition: elsewhere the optimizer fails where only a row may.
        generate_code(rows.select(f.when(f.col("plan") >= 0, f.struct(*(_tried(rows, value) for value in values)))))

    try:
        check(*(value for _, value in values))
    except (PySparkException, Py4JJavaError):
        for output, value in values:
            try:
                check(value)
            except (PySparkException, Py4JJavaError) as error:
                with suppress(Py4JJavaError):  # another failure than a refusal is left to the run
                    reason = reason_of(error, query, output)
                    raise refusal(query.text, output.at, reason) from None


def _accepts(rows: DataFrame, wanted: DataType, given: DataType) -> bool:
    """Return whether each value of the type *given* is one of *wanted*."""
    if isinstance(wanted, StringType) or isinstance(given, StringType):
        return isinstance(wanted, StringType) and isinstance(given, StringType)
    return can_up_cast(rows.sparkSession, given, wanted)


def explain_query(session: SparkSession, query: BoundQuery) -> str:
    """Return Catalyst's optimized plan of *query*, which `plan_query` accepts, in the query's names. Runs nothing."""
    rows = _empty(session, query, passed=True)
    if query.condition is not None:
        rows = rows.where(f.expr(_on_one_line(query.condition_sql)))
    selected = [
        (f.col("passed").getField(output.column) if output.column else f.expr(_on_one_line(output.sql))).alias(
            output.name
        )
        for output in (*query.outputs, *([] if query.topic is None else [query.topic]))
    ]
    lines = optimized(rows.select(*selected)).toString().rstrip().splitlines()
    text = "\n".join([*lines[:-1], re.sub(r"LogicalRDD.*", f"changes of {query.schema.name}", lines[-1])])
    for pattern, name in _PLAN_NAMES:
        text = pattern.sub(name, text)
    for call in query.calls:
        arguments = _CALL.sub(r"\1", named(", ".join(call.arguments)))
        text += f"\n{call.column} is {call.function.name}({arguments}), in Python"
    return text


def evaluated(rows: DataFrame, plans: Sequence[QueryPlan]) -> DataFrame:
    """Return what the queries of all versions give for *rows*, in the columns layout.

    Of a change there are `plan`, `position`, and in place of `vN` there is `oN`, a struct of what the query computes,
    if it computes anything: for each expression `cI` by the number of its output a struct of its value or null where it
    failed, and `topic` and `condition` likewise. Where Python functions are called, `eI`, `topic_error` and
    `condition_error` say why they failed. Rows that a condition refuses are left out; those for which it failed are
    not, and notes neither.
    """
    for plan in plans:
        for call in plan.query.calls:
            types = [from_arrow_type(type_, prefer_timestamp_ntz=True) for type_ in call.function.arguments]
            given = [
                _tried(rows, f.expr(f"CAST({_on_one_line(sql)} AS {type_.simpleString()})"))
                for sql, type_ in zip(call.arguments, types, strict=True)
            ]
            rows = called(rows, call, number=plan.query.number, arguments=given)
    kept = f.col("plan") < 0
    results = []
    for plan in plans:
        query = plan.query
        if not query.by_spark:
            continue
        fields = []
        for index, output in enumerate(query.outputs):
            if not output.column:
                fields.append(_tried(rows, _value(rows, output, plan)).alias(f"c{index}"))
                fields += _errors(output, f"e{index}")
        if query.topic is not None:
            fields.append(_tried(rows, f.expr(_on_one_line(query.topic.sql))).alias("topic"))
            fields += _errors(query.topic, "topic_error")
        condition = f.lit(True)
        if query.condition is not None and not query.decided:
            value = with_infinities(rows, f.expr(_on_one_line(query.condition_sql)))
            held = tried_value(f.coalesce(value, f.lit(False)))
            fields += [held.alias("condition"), *_errors(query.condition, "condition_error")]
            condition = f.coalesce(held, f.lit(True))
        kept = kept | ((f.col("plan") == query.number) & condition)
        if fields:
            results.append(f.when(f.col("plan") == query.number, f.struct(*fields)).alias(f"o{query.number}"))
    return rows.where(kept).select("kind", "version", "payload", "plan", "position", *results)


def _errors(output: Output, name: str) -> list[Column]:
    """Return why a Python function that *output* calls has failed, as column *name*; nothing where there is none."""
    errors = [f.col(call).getField("error") for call in output.calls]
    return [f.coalesce(*errors).alias(name)] if errors else []


def _value(rows: DataFrame, output: Output, plan: QueryPlan) -> Column:
    """Return the value of an expression; a nested one becomes JSON."""
    value = f.expr(_on_one_line(output.sql))
    nested = plan.schema.column(output.name).type == _JSON and not output.row
    return as_json(value, rows.select(value).schema[0].dataType) if nested else value


def _tried(rows: DataFrame, value: Column) -> Column:
    """Return a struct with the *value* of an expression, or null where evaluating it fails."""
    return tried(with_infinities(rows, value))


def _on_one_line(sql: str) -> str:
    """Return an expression that may end in a comment."""
    return f"(\n{sql}\n)"


def _type_of(rows: DataFrame, query: BoundQuery, output: Output) -> ColumnType:
    selected = _selected(rows, query, output)
    if output.row:
        return _JSON
    type_ = selected.schema[0].dataType
    simple = _SIMPLE.get(type(type_))
    if simple is not None:
        return simple
    if isinstance(type_, StringType):
        return _TEXT
    if isinstance(type_, DecimalType):
        source = f"numeric({type_.precision},{type_.scale})"
        return ColumnType(kind=Kind.DECIMAL, source=source, precision=type_.precision, scale=type_.scale)
    if isinstance(type_, ArrayType | MapType | StructType):
        return _JSON
    if isinstance(type_, NullType):
        raise refusal(
            query.text, output.at, f"{output.text} is null for every row and has no type; write CAST(… AS type)"
        )
    raise refusal(
        query.text, output.at, f"{output.text} has the type {type_.simpleString()}, which no message can hold; cast it"
    )


def _selected(rows: DataFrame, query: BoundQuery, output: Output) -> DataFrame:
    """Return *rows* with the expression as their only column. Raises: OptionError when Spark or we refuse it."""
    try:
        selected = rows.select(f.expr(_on_one_line(output.sql)).alias("value"))
    except (PySparkException, Py4JJavaError) as error:
        raise refusal(query.text, output.at, reason_of(error, query, output)) from None
    plan = analyzed(selected)
    under = list(items(plan.children()))
    if plan.nodeName() != "Project" or list(items(under[0].children())):
        found = next((each for each in (plan.nodeName(), under[0].nodeName()) if each in _MANY_ROWS), "Aggregate")
        raise refusal(query.text, output.at, f"a query cannot use {output.text}: {_MANY_ROWS[found]}")
    times = {column.name for column in query.schema.columns if column.type.kind in (Kind.TIME, Kind.TIMETZ)}
    reason = next(filter(None, (unusable(each, times) for each in items(written_out(plan).expressions()))), "")
    if reason:
        raise refusal(query.text, output.at, f"{output.text}: {reason}")
    for expression in items(plan.expressions()):
        if not expression.deterministic():
            culprit = _nondeterministic(expression)
            raise refusal(
                query.text,
                output.at,
                f"a query cannot call {culprit}: it returns a different value each time, but a change may be "
                "delivered more than once",
            )
    return selected


def _nondeterministic(expression: JavaObject) -> str:
    for child in items(expression.children()):
        if not child.deterministic():
            return _nondeterministic(child)
    return str(expression.prettyName())


def _check_condition(rows: DataFrame, query: BoundQuery, condition: Output) -> None:
    type_ = _selected(rows, query, condition).schema[0].dataType
    if not isinstance(type_, BooleanType | NullType):
        raise refusal(query.text, condition.at, f"the condition has the type {type_.simpleString()}, not boolean")
    holds = f.expr(_on_one_line(condition.sql)).cast("boolean")
    try:
        plan = optimized(rows.where(holds))
    except PySparkException as error:  # what it can compute in advance fails
        raise refusal(query.text, condition.at, reason_of(error, query, condition)) from None
    if any(leaf.nodeName() == "LocalRelation" for leaf in items(plan.collectLeaves())):
        raise refusal(query.text, condition.at, "the condition does not match any rows")
