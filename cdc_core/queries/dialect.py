"""The SQL of queries: Spark's, with identifiers and strings as standard SQL writes them; and why it can fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from cdc_core.errors import OptionError
from cdc_core.queries.refusals import refusal
from cdc_core.schema import Kind, TableSchema
from cdc_core.sql_names import fold

_BEFORE = "SELECT "
_NO_EXPRESSION = "this is not an expression of Spark SQL"


class _Dialect(Spark):
    class Tokenizer(Spark.Tokenizer):
        QUOTES = ["'"]  # noqa: RUF012
        IDENTIFIERS = ["`", '"']  # noqa: RUF012
        STRING_ESCAPES = ["'"]  # noqa: RUF012
        COMMANDS: ClassVar = set()  # what follows SHOW would be one text otherwise


def tokens_of(text: str, *, what: str = "query", shown: str | None = None) -> Sequence[Token]:
    """Return the tokens of *text*; `start` and `end` of each are offsets of its first and last character.

    *what* the text is, for the error, which shows *shown* in place of the text.

    Raises: OptionError.
    """
    try:
        tokens: Sequence[Token] = _Dialect().tokenize(text)
    except TokenError as error:
        quoted = isinstance(error.__cause__, TokenError)  # it names the mark that is missing
        opened, marks = ("quotation mark", ("'", '"', "`")) if quoted else ("comment", ("/*",))
        at = max(0, *(text.rfind(mark) for mark in marks))
        raise refusal(text if shown is None else shown, at, f"a {opened} is not closed", what=what) from None
    return tokens


def knows_function(name: str) -> bool:
    """Return whether the parser gives a call of *name* a meaning of its own."""
    parser = _Dialect.Parser
    known = (parser.FUNCTIONS, parser.FUNCTION_PARSERS, parser.NO_PAREN_FUNCTION_PARSERS)
    return any(name.upper() in names for names in known)


def is_word_of_sql(name: str) -> bool:
    return [token.token_type for token in _Dialect().tokenize(name)] != [TokenType.VAR]


def parsed(query: str, start: int, end: int, *, what: str = "query") -> exp.Expr:
    """Return the tree of the expression that is `query[start:end]`, with an alias if there is one.

    `place_of` says where its parts are. Raises: OptionError.
    """
    text = query[start:end]
    try:
        tree = parse_one(f"{_BEFORE}{text}", dialect=_Dialect)  # by itself, it could be taken for a command
    except (ParseError, TokenError) as error:
        at = start + _place(text, error)
        hint = "; for a pattern, write RLIKE" if query.startswith(("~", "!~"), at) else ""
        raise refusal(query, at, _NO_EXPRESSION + hint, what=what) from None
    except RecursionError:
        raise refusal(query, start, "this expression is nested too deeply", what=what) from None
    only = tree.expressions if isinstance(tree, exp.Select) else []
    if len(only) != 1 or any(value for name, value in tree.args.items() if name != "expressions"):
        raise refusal(query, start, _NO_EXPRESSION, what=what)
    expression: exp.Expr = only[0]
    return expression


def place_of(query: str, start: int, name: exp.Identifier, *, what: str = "query") -> tuple[int, int]:
    """Return where *name*, of the tree of an expression at *start*, begins and ends in the query.

    Raises: OptionError for a word of SQL that is used as a name.
    """
    if "end" not in name.meta:
        reason = f'put the name "{name.name}" in quotation marks: it is a SQL keyword'
        raise refusal(query, start, reason, what=what)
    return start + name.meta["start"] - len(_BEFORE), start + name.meta["end"] + 1 - len(_BEFORE)


def _place(text: str, error: ParseError | TokenError) -> int:
    """Return the offset in *text* that *error* is about."""
    found = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    line, column = found.get("line"), found.get("col")
    if line is None or column is None:
        return 0
    start = sum(len(each) for each in f"{_BEFORE}{text}".splitlines(keepends=True)[: line - 1])
    return max(0, start + int(column) - len(found.get("highlight") or " ") - len(_BEFORE))


def folded(token: Token) -> str:
    """Return the name that *token* is, in lower case unless it is in quotes, as in PostgreSQL."""
    return token.text if token.token_type is TokenType.IDENTIFIER else fold(token.text)


def called_names(text: str) -> Iterator[str]:
    """Yield the names of the functions that *text* calls, and of whatever else has a parenthesis after it."""
    for token, following in pairwise(tokens_of(text)):
        if following.token_type is TokenType.L_PAREN and token.token_type is not TokenType.STRING:
            yield folded(token)


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
