"""Why an expression can fail for the values of a row. Spark only says that it did."""

from __future__ import annotations

from sqlglot import exp

from cdc_core.errors import OptionError
from cdc_core.queries.dialect import parsed
from cdc_core.schema import Kind, TableSchema
from cdc_core.sql_names import fold

__all__ = ["possible_causes"]

_ANY = "a division by zero, a cast that failed, a number out of range, or an infinite date or time"
_CAUSES: tuple[tuple[str, tuple[type[exp.Expr], ...]], ...] = (
    ("a division by zero", (exp.Div, exp.IntDiv, exp.Mod)),
    ("a cast that failed", (exp.Cast,)),
    ("a number out of range", (exp.Add, exp.Sub, exp.Mul, exp.Neg)),
)
_NEVER = (exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.DataType, exp.DataTypeParam)
_KNOWN: tuple[type[exp.Expr], ...] = (*_NEVER, *(kind for _, kinds in _CAUSES for kind in kinds))
_NUMBERS = (Kind.INT, Kind.FLOAT, Kind.DECIMAL)


def possible_causes(text: str, schema: TableSchema) -> str:
    """Return why *text*, an expression over rows of *schema*, can fail: the one cause where only that is possible.

    So it is in one operation over columns of numbers, which Spark casts by itself without a failure.
    """
    try:
        nodes = list(parsed(text, 0, len(text)).walk())
    except OptionError:  # it begins with WHERE
        return _ANY
    found = {cause for node in nodes for cause, kinds in _CAUSES if isinstance(node, kinds)}
    others = [node for node in nodes if not isinstance(node, _KNOWN)]
    columns = {fold(column.name) for column in schema.columns if column.type.kind in _NUMBERS}
    named = all(fold(node.name) in columns for node in nodes if isinstance(node, exp.Column))
    texts = any(node.is_string for node in nodes if isinstance(node, exp.Literal))
    alone = len(found) == 1 and not others and ((named and not texts) or found == {"a cast that failed"})
    return found.pop() if alone else _ANY
