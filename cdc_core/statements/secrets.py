"""What of a statement may be shown in an error or kept: it may hold secrets, and which ones is not known yet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.errors import OptionError
from cdc_core.masking import is_secret_name, uri_secrets
from cdc_core.options import option_names
from cdc_core.queries.dialect import tokens_of
from cdc_core.statements.options import OPTIONS

_SECRET_KINDS = ("text", "JSON", "URI")
_OF_SCHEDULES = ("first_run", "on_execution_failure", "on_previous_running", "time_zone")
_HARMLESS = (
    {option.name for option in OPTIONS if option.kind not in _SECRET_KINDS}
    | {name for name in option_names(ChangefeedOptions) if not is_secret_name(name) and name != "dead_letter"}
    | {"name", "options", "reason", *_OF_SCHEDULES}
)
"""Options whose values are not secrets. Of any other it is not known before the plugins are."""
_LISTS = ("SET", "UNSET", "WITH")
"""Words before a list of options. Those that end one are `_ENDS`."""
_ENDS = ("ADD", "AS", "DROP", "INTO", "RECURRING")
_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)
_REFERENCE = re.compile(r"(?<!\$)\$\{(\w+|file:[^{}'\"`]*)\}")
_SCHEME = re.compile(r"['\"`]?\w[\w+.-]*://")
_URI = re.compile(r"[\w+.-]+://[^\s'\"`]+")
_SECRET_PATH = re.compile(r"(webhook-)?https?://|webhook-", re.IGNORECASE)
_JSON = re.compile(r"[{[]|%7b|%5b", re.IGNORECASE)


def without_secrets(text: str, tokens: Sequence[Token], *, harmless_uris: bool = False) -> str:
    """Return *text*, whose tokens are *tokens*, with asterisks in place of all that may be secret.

    That are comments, URIs after their schemes, and the values of options that are not known to be harmless. With
    *harmless_uris* a URI in which nothing can be secret is left. The result is as long as *text*, and lines end where
    they did.
    """
    shown = list(all_hidden(text))
    for token, hidden in _judged(tokens):
        part = text[token.start : token.end + 1]
        if "://" in part and not (harmless_uris and not _has_secret(part)):
            scheme = _SCHEME.match(part)
            part = "*" * len(part) if scheme is None else scheme[0] + all_hidden(part[scheme.end() :])
        elif hidden and ("://" not in part or token.token_type is not TokenType.STRING):
            part = all_hidden(part)
        shown[token.start : token.end + 1] = part
    return "".join(shown)


def all_hidden(text: str) -> str:
    """Return *text* with asterisks in place of all but spaces and quotation marks."""
    return re.sub(r"[^\s'\"`]", "*", text)


def holds_secret(text: str) -> bool:
    """Return whether *text* may hold a secret that is not a reference."""
    text = _REFERENCE.sub("", text)
    try:
        return without_secrets(text, tokens_of(text), harmless_uris=True) != text
    except OptionError:
        return True


def _judged(tokens: Sequence[Token]) -> Iterator[tuple[Token, bool]]:
    """Yield each token with whether it can be the value of an option or a part of a URI, and so must be hidden."""
    inside, name, value, address, addressed = False, "", False, False, False
    before: Token | None = None
    for index, token in enumerate(tokens):
        kind, word = token.token_type, "" if token.token_type in _QUOTED else token.text.upper()
        assigned = before is not None and before.token_type is TokenType.EQ
        if kind is TokenType.SEMICOLON or (not assigned and word in (*_LISTS, *_ENDS)):
            inside, name, value, address, addressed = word in _LISTS, "", False, word == "INTO", False
            yield token, False
        elif kind is TokenType.EQ:
            value = True
            yield token, False
        elif kind in (TokenType.COMMA, TokenType.R_PAREN) or (kind is TokenType.L_PAREN and not assigned):
            name, value = "", False
            yield token, False
        elif value or address:
            yield token, (not addressed or kind in _QUOTED) if address else name not in _HARMLESS
            addressed = kind is TokenType.STRING or addressed
        else:
            dotted = before is not None and before.token_type is TokenType.DOT
            follows = tokens[index + 1].token_type if index + 1 < len(tokens) else None
            first = not name or kind is TokenType.DOT or dotted
            # In a list of options, only a comma or = is between a name and what follows it.
            named = first and (kind is not TokenType.STRING or follows in (TokenType.EQ, TokenType.DOT))
            hidden = inside and not named and word.lower() not in _HARMLESS
            if word != "OPTIONS" and (inside or not dotted):
                name = (name if inside and (kind is TokenType.DOT or dotted) else "") + token.text.lower()
            yield token, hidden
        before = token


def _has_secret(part: str) -> bool:
    """Return whether a token with a URI may hold a secret: in its path, a JSON parameter or a login."""
    uris = _URI.findall(part)
    return (
        _SECRET_PATH.search(part) is not None
        or _JSON.search(part) is not None
        or not uris
        or any(uri_secrets(uri) for uri in uris)
    )
