"""The SQL of queries: Spark's, with identifiers and strings as standard SQL writes them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token

from cdc_core.queries.refusals import refusal

__all__ = ["parsed", "tokens_of"]


class _Dialect(Spark):
    class Tokenizer(Spark.Tokenizer):
        QUOTES = ["'"]  # noqa: RUF012
        IDENTIFIERS = ["`", '"']  # noqa: RUF012
        STRING_ESCAPES = ["'"]  # noqa: RUF012


def tokens_of(text: str) -> Sequence[Token]:
    """Return the tokens of *text*; `start` and `end` of each are offsets of its first and last character.

    Raises: OptionError.
    """
    try:
        tokens: Sequence[Token] = _Dialect().tokenize(text)
    except TokenError:
        at = max(text.rfind("'"), text.rfind('"'), text.rfind("`"), 0)
        raise refusal(text, at, "a quotation mark is not closed") from None
    return tokens


def parsed(query: str, start: int, end: int) -> exp.Expr:
    """Return the tree of the expression that is `query[start:end]`. Its positions count from *start*.

    Raises: OptionError.
    """
    text = query[start:end]
    try:
        tree = parse_one(text, dialect=_Dialect)
    except (ParseError, TokenError) as error:
        raise refusal(query, start + _place(text, error), "this is not an expression of Spark SQL") from None
    return tree


def _place(text: str, error: ParseError | TokenError) -> int:
    """Return the offset in *text* that *error* is about."""
    found = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    line, column = found.get("line"), found.get("col")
    if line is None or column is None:
        return 0
    start = sum(len(each) for each in text.splitlines(keepends=True)[: line - 1])
    return max(0, start + int(column) - len(found.get("highlight") or " "))
