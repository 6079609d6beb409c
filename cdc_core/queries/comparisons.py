"""The comparisons of columns with constants at the beginning of a condition, which others than Spark evaluate as well.

They end at the first part that only Spark can evaluate: a row must not be left out for which an earlier part fails.
They hold in Spark exactly where they hold by `cdc_core.restriction`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime

from sqlglot import exp

from cdc_core.queries.dialect import parsed
from cdc_core.queries.query import EVENT_OP, MVCC_COLUMN, Query
from cdc_core.restriction import Comparison
from cdc_core.schema import Column, ColumnType, Kind, TableSchema
from cdc_core.sql_names import fold

_OPERATORS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TEXTS = (Kind.STRING, Kind.ENUM, Kind.UUID)
_UNORDERED = ("=", "<>", "in")
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?", re.ASCII)
_MAX_DIGITS = 18
"""Numbers with so many digits can be compared in Spark's decimals without a loss."""
_MIN_BIGINT, _MAX_BIGINT = -(2**63), 2**63 - 1

_EVENT_OP = Column(name=EVENT_OP, type=ColumnType(kind=Kind.STRING, source="text"))

_Value = bool | int | str | date | datetime


def comparisons_of(query: Query, schema: TableSchema) -> tuple[tuple[Comparison, ...], bool]:
    """Return the comparisons of *query*, which `bind` accepts, and whether no row for which one is null can fail.

    The value of `event_op()`, of which sources know nothing, is compared as a column `EVENT_OP`. Where one is false,
    Spark evaluates no later part of the condition. Where one is null, it does.
    """
    if query.condition is None:
        return (), True
    found: list[Comparison] = []
    for part in _conjuncts(parsed(query.text, query.condition.start, query.condition.end)):
        comparison = _comparison(part, query, schema)
        if comparison is None:
            return tuple(found), False
        found.append(comparison)
        if comparison.column != EVENT_OP and schema.column(comparison.column).type.kind is Kind.DECIMAL:
            return tuple(found), False  # it fails for NaN
    return tuple(found), True


def parts_of_condition(query: Query) -> tuple[str, ...]:
    """Return what AND joins in the condition of *query*, as SQL; those of `comparisons_of` come first."""
    if query.condition is None:
        return ()
    tree = parsed(query.text, query.condition.start, query.condition.end)
    return tuple(part.sql(dialect="spark", comments=False) for part in _conjuncts(tree))


def _conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts that AND joins, in order."""
    waiting = [tree]
    while waiting:
        node = waiting.pop().unnest()
        if isinstance(node, exp.And):
            waiting += [node.expression, node.this]
        elif isinstance(node, exp.Between) and not node.args.get("symmetric"):
            waiting += [
                exp.LTE(this=node.this, expression=node.args["high"]),
                exp.GTE(this=node.this, expression=node.args["low"]),
            ]
        else:
            yield node


def _comparison(node: exp.Expr, query: Query, schema: TableSchema) -> Comparison | None:
    if isinstance(node, exp.Column):
        column = _column(node, query, schema)
        return _made(column, "=", [True])
    inner = node.this.unnest() if isinstance(node, exp.Not) else node
    if isinstance(node, exp.Not) and isinstance(inner, exp.Column):
        return _made(_column(inner, query, schema), "=", [False])
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
        column = _column(inner.this, query, schema)
        if column is None or column.type.kind in (Kind.COMPOSITE, Kind.DECIMAL):
            return None  # ROW(NULL) IS NULL holds in SQL, and a number may be none for Spark
        return Comparison(column=column.name, operator="is not null" if inner is not node else "is null")
    if isinstance(node, exp.In):
        column = _column(node.this, query, schema)
        listed = node.args.get("expressions") or []
        return _made(column, "in", [_constant(each, column) for each in listed])
    operator = next((text for type_, text in _OPERATORS.items() if type(node) is type_), None)
    if operator is None:
        return None
    left, right = node.this.unnest(), node.expression.unnest()
    if isinstance(right, exp.Column):
        left, right, operator = right, left, _TURNED[operator]
    column = _column(left, query, schema)
    return _made(column, operator, [_constant(right, column)])


def _made(column: Column | None, operator: str, values: list[_Value | None]) -> Comparison | None:
    """Return the comparison; None for what Spark alone can evaluate."""
    if column is None or not values:
        return None
    known = tuple(value for value in values if value is not None and _fits(value, column))
    if len(known) < len(values) or (column.type.kind in (*_TEXTS, Kind.BOOL) and operator not in _UNORDERED):
        return None
    return Comparison(column=column.name, operator=operator, values=known)  # type: ignore[arg-type]


def _column(node: exp.Expr, query: Query, schema: TableSchema) -> Column | None:
    node = node.unnest()
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == "event_op":
        return _EVENT_OP
    if not isinstance(node, exp.Column) or not all(isinstance(part, exp.Identifier) for part in node.parts):
        return None
    *qualifier, name = (part.name if part.args.get("quoted") else fold(part.name) for part in node.parts)
    quoted = node.parts[-1].args.get("quoted")
    if (qualifier and tuple(qualifier) not in query.names) or (not quoted and name == MVCC_COLUMN):
        return None
    names = [column.name for column in schema.columns]
    if name in names:
        return schema.column(name)
    found = next((known for known in names if known.lower() == name.lower()), None)  # none for the row before
    return None if found is None else schema.column(found)


def _constant(node: exp.Expr, column: Column | None) -> _Value | None:
    node = node.unnest()
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        type_ = node.to.this
        return _moment(str(node.this.this), type_.value if isinstance(type_, exp.DataType.Type) else "", column)
    sign = -1 if isinstance(node, exp.Neg) else 1
    literal = node.this.unnest() if isinstance(node, exp.Neg) else node
    if not isinstance(literal, exp.Literal):
        return None
    text = str(literal.this)
    if literal.is_string:
        return text if sign == 1 else None
    return sign * int(text) if len(text) <= _MAX_DIGITS + 1 and text.isascii() and text.isdigit() else None


def _moment(text: str, type_: str, column: Column | None) -> date | datetime | None:
    """Return the date or the time that a cast of *text* gives; None where sources could read it otherwise."""
    try:
        if type_ == "DATE" and _DATE.fullmatch(text):
            return date.fromisoformat(text)
        if type_ in ("TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ") and _TIME.fullmatch(text):
            plain = datetime.fromisoformat(text)
            with_zone = column is not None and column.type.kind is Kind.TIMESTAMPTZ
            return plain.replace(tzinfo=UTC) if with_zone else plain
    except ValueError:
        pass
    return None


def _fits(value: _Value, column: Column) -> bool:
    """Return whether Spark compares the column with *value* without changing the type of either so that it matters."""
    type_ = column.type
    if isinstance(value, bool):
        return type_.kind is Kind.BOOL
    if isinstance(value, int):
        if type_.kind is Kind.DECIMAL:
            digits = max(type_.precision or 0, type_.scale or 0)
            return 0 < digits <= _MAX_DIGITS and (type_.scale or 0) >= 0 and abs(value) < 10**_MAX_DIGITS
        return type_.kind is Kind.INT and _MIN_BIGINT <= value <= _MAX_BIGINT
    if isinstance(value, str):
        return type_.kind in _TEXTS and "\0" not in value
    if isinstance(value, datetime):
        return type_.kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ)
    return type_.kind is Kind.DATE
