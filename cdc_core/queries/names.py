"""Names of tables and columns in SQL text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from cdc_core.queries.dialect import tokens_of
from cdc_core.sql_names import fold

__all__ = ["called_names", "folded"]


def folded(token: Token) -> str:
    """Return the name that *token* is, in lower case unless it is in quotes, as in PostgreSQL."""
    return token.text if token.token_type is TokenType.IDENTIFIER else fold(token.text)


def called_names(text: str) -> Iterator[str]:
    """Yield the names of the functions that *text* calls, and of whatever else has a parenthesis after it."""
    for token, following in pairwise(tokens_of(text)):
        if following.token_type is TokenType.L_PAREN and token.token_type is not TokenType.STRING:
            yield folded(token)
