"""Dates and timestamps that are infinite, in expressions: what PostgreSQL gives for them, or an error.

Spark has no infinities. They travel as the first and the last value of its types, with which it calculates as with any
other: a day after the last is the first, and its year is 5881580. So each calculation with dates and timestamps is
rewritten once Spark has found the types: an infinite value stays infinite where the result is a date, a timestamp or
a text, and fails elsewhere. Days are added and subtracted as numbers, which fail where dates would wrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, DateType, MapType, StructType, TimestampNTZType, TimestampType

from cdc_core.spark.private_api import (
    JavaObject,
    analyzed,
    column_of,
    expression_of,
    items,
    literal,
    with_children,
    written_out,
)

_LIMITS = {"date": 2**31 - 1, "timestamp": 2**63 - 1, "timestamp_ntz": 2**63 - 1}
"""By type: infinity. The number before minus this one is -infinity."""
_TEXTS = ("infinity", "-infinity")
_UNCHANGED = frozenset(
    {
        "Alias",
        "ArrayAggregate",
        "ArrayContains",
        "CaseWhen",
        "Coalesce",
        "CommonExpressionDef",
        "CreateArray",
        "CreateMap",
        "CreateNamedStruct",
        "EqualNullSafe",
        "EqualTo",
        "GreaterThan",
        "GreaterThanOrEqual",
        "Greatest",
        "If",
        "In",
        "IsNotNull",
        "IsNull",
        "LambdaFunction",
        "Least",
        "LessThan",
        "LessThanOrEqual",
        "Murmur3Hash",
        "With",
        "XxHash64",
    }
)
"""Expressions that compare, choose or collect values, and give no other ones."""
_DEFINITIONS = ("CommonExpressionDef", "LambdaFunction")
"""Operands that are not values: nothing else may take their place."""


def with_infinities(rows: DataFrame, value: Column) -> Column:
    """Return *value*, an expression over *rows* that Spark accepts, with infinities as PostgreSQL has them."""
    plan = written_out(analyzed(rows.select(value.alias("value"))))
    given = plan.expressions().apply(0).child()
    found = _rewritten(given)
    return value if found is given else column_of(found)


def as_json(value: Column, type_: DataType) -> Column:
    """Return nested values of *type_* as JSON, with dates and timestamps as the JSON encoder writes them."""
    return f.to_json(_with_texts(value, type_), {"ignoreNullFields": "false"})


def _with_texts(value: Column, type_: DataType) -> Column:
    """Return *value* with texts in place of dates and timestamps."""
    if isinstance(type_, StructType):
        members = [_with_texts(value.getField(field.name), field.dataType).alias(field.name) for field in type_]
        return f.when(value.isNotNull(), f.struct(*members)) if members else value
    if isinstance(type_, ArrayType):
        element = type_.elementType
        return f.transform(value, lambda each: _with_texts(each, element))
    if isinstance(type_, MapType):
        values = type_.valueType
        return f.transform_values(value, lambda _, each: _with_texts(each, values))
    if isinstance(type_, DateType):
        return f.regexp_replace(value.cast("string"), r"^\+", "")
    if isinstance(type_, TimestampType | TimestampNTZType):
        zone = "Z" if isinstance(type_, TimestampType) else ""
        return f.regexp_replace(value.cast("string"), r"^\+?(\S+) (\S+)$", f"$1T$2{zone}")
    return value


def _rewritten(expression: JavaObject) -> JavaObject:
    """Return *expression* of Catalyst, the same object if it does not calculate with dates or timestamps."""
    old = list(items(expression.children()))
    if not old:
        return expression
    new = [_rewritten(child) for child in old]
    name, wanted = expression.nodeName(), expression.dataType()
    times = {
        place: child.dataType()
        for place, child in enumerate(old)
        if child.nodeName() not in _DEFINITIONS and child.dataType().typeName() in _LIMITS
    }
    if any(one is not other for one, other in zip(new, old, strict=True)):
        expression = with_children(expression, new)
    if name in _UNCHANGED or not times:
        return expression
    return expression_of(_guarded(name, column_of(expression), wanted, new, times))


def _guarded(
    name: str, value: Column, wanted: JavaObject, children: Sequence[JavaObject], times: dict[int, JavaObject]
) -> Column:
    """Return *value*, the expression *name* of the type *wanted*, with what it is where one of *times* is infinite.

    *children* are its operands, and *times* the types of those that are dates or timestamps, by place.
    """
    operands = [column_of(child) for child in children]
    if name in ("DateAdd", "DateSub"):
        days = f.unix_date(operands[0])
        value = f.date_from_unix_date(days + operands[1] if name == "DateAdd" else days - operands[1])
    elif name == "DateDiff":
        value = f.unix_date(operands[0]) - f.unix_date(operands[1])
    kind = wanted.typeName()
    infinite = [operands[place] == limit for place, type_ in times.items() for limit in _limits(type_)]
    if len(times) == 1 and (kind in _LIMITS or (name == "Cast" and kind == "string")):
        known = [
            operand.isNotNull()
            for place, (operand, child) in enumerate(zip(operands, children, strict=True))
            if place not in times
        ]
        results = _limits(wanted) if kind in _LIMITS else [f.lit(text) for text in _TEXTS]
        for which, result in zip(infinite, results, strict=True):
            value = f.when(reduce(and_, known, which), result).otherwise(value)
        return value
    return f.when(reduce(or_, infinite), f.raise_error(f.lit("infinite"))).otherwise(value)


def _limits(type_: JavaObject) -> list[Column]:
    """Return infinity and -infinity of *type_*."""
    limit = _LIMITS[type_.typeName()]
    return [literal(number, type_) for number in (limit, -limit - 1)]
