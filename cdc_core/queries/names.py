"""Names of tables and columns in SQL text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sqlglot.tokenizer_core import Token, TokenType

__all__ = ["folded", "listed"]

_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")
_QUOTE = '"'


def folded(token: Token) -> str:
    """Return the name that *token* is, in lower case unless it is in quotes, as in PostgreSQL."""
    return token.text if token.token_type is TokenType.IDENTIFIER else token.text.lower()


def listed(parts: Iterable[str]) -> str:
    """Return a name of several *parts* as it is listed under `tables`: with quotation marks where it needs them."""
    return ".".join(part if _PLAIN.fullmatch(part) else f'"{part.replace(_QUOTE, 2 * _QUOTE)}"' for part in parts)
