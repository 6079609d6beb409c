"""Reads the tokens of a statement one after another, and says where something else was expected."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from cdc_core.errors import OptionError
from cdc_core.queries.dialect import folded, tokens_of
from cdc_core.queries.refusals import refusal
from cdc_core.sql_names import listed
from cdc_core.statements.secrets import all_hidden, without_secrets

_WHAT = "statement"
_RESERVED = frozenset({"AS", "DROP", "FAMILY", "INTO", "RECURRING", "SELECT", "SET", "UNSET", "WITH"})
"""Words that end a list of tables: as a table's name, they must be in quotation marks."""


class Reading:
    """A place in the tokens of a text of statements. What is asked for is taken, and the place moves behind it."""

    def __init__(self, text: str) -> None:
        """Raises: OptionError when a quotation mark is not closed."""
        self.text = text
        self._tokens: Sequence[Token] = tokens_of(text, what=_WHAT, shown=all_hidden(text))
        self._hidden = without_secrets(text, self._tokens)
        self._place = 0

    @property
    def token(self) -> Token | None:
        """The next token, None at the end of the text."""
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    @property
    def at(self) -> int:
        """The offset of the next token."""
        return len(self.text) if self.token is None else self.token.start

    @property
    def shown(self) -> str:
        """The next token as it may be shown. Not at the end of the text."""
        token = self._tokens[self._place]
        return self._hidden[token.start : token.end + 1]

    @property
    def at_end(self) -> bool:
        """Whether the statement ends here."""
        return self.token is None or self.token.token_type is TokenType.SEMICOLON

    def skip(self) -> Token:
        """Take any token. Not at the end of the text."""
        self._place += 1
        return self._tokens[self._place - 1]

    def is_word(self, *words: str, ahead: int = 0) -> bool:
        """Return whether the next token, or one *ahead* of it, is one of *words*, not in quotation marks."""
        place = self._place + ahead
        token = self._tokens[place] if place < len(self._tokens) else None
        quoted = token is not None and token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
        return token is not None and not quoted and token.text.upper() in words

    def has(self, *words: str) -> bool:
        """Take *words*, one after the other, if they are next; return whether they were."""
        if not all(self.is_word(word, ahead=index) for index, word in enumerate(words)):
            return False
        self._place += len(words)
        return True

    def has_mark(self, kind: TokenType) -> bool:
        """Take a token such as a comma if it is next; return whether it was."""
        found = self.token is not None and self.token.token_type is kind
        self._place += found
        return found

    def require(self, *words: str, shape: str) -> None:
        """Take *words*. Raises: OptionError, which shows the *shape* of the statement."""
        if not self.has(*words):
            raise self.unexpected(f"{' '.join(words)} is missing", shape)

    def unexpected(self, reason: str, shape: str) -> OptionError:
        """Return the error about what is next."""
        return self.refused(f"{reason}; write {shape}")

    def refused(self, reason: str, at: int | None = None) -> OptionError:
        """Return the error about what is at offset *at*; about what is next without it."""
        return refusal(self._hidden, self.at if at is None else at, reason, what=_WHAT)

    def string(self, meaning: str) -> str:
        """Take a text in single quotation marks. Raises: OptionError, which says what it means."""
        if self.token is None or self.token.token_type is not TokenType.STRING:
            fault = "is missing here; write it" if self.at_end else "must be"
            raise self.refused(f"{meaning} {fault} in single quotation marks")
        return str(self.skip().text)

    def name(self, meaning: str) -> str:
        """Take the name of a job or a schedule: a text, a word or a number."""
        token = self.token
        kinds = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER)
        if token is None or not (token.token_type in kinds or _is_plain(token)):
            raise self.refused(f"{meaning} is missing here")
        self.skip()
        following = self.token
        if following is not None and following.start == token.end + 1 and following.token_type is TokenType.DASH:
            raise self.refused(f"{meaning} must be in single quotation marks: it has a hyphen", token.start)
        return str(token.text)

    def names(self, meaning: str) -> list[str]:
        """Take a list of names of jobs or schedules, in parentheses or not."""
        inside = self.has_mark(TokenType.L_PAREN)
        if self.is_word("SELECT", "WITH", "VALUES"):
            raise self.refused("a query is not supported here; write one or more names")
        found = [self.name(meaning)]
        while self.has_mark(TokenType.COMMA):
            found.append(self.name(meaning))
        if inside and not self.has_mark(TokenType.R_PAREN):
            raise self.refused("the parenthesis before the names is not closed")
        return found

    def table(self) -> str:
        """Take the name of a table, as it is listed under `tables`; `*` stands for all tables of a schema."""
        parts: list[str] = []
        while True:
            token = self.token
            if parts and self.has_mark(TokenType.STAR):
                return f"{listed(parts)}.*"
            if token is not None and token.token_type is TokenType.STRING:
                reason = (
                    "the name of a table cannot be in single quotation marks; remove them, or use double quotation"
                    " marks"
                )
                raise self.refused(reason)
            if (
                token is None
                or not (token.token_type is TokenType.IDENTIFIER or _is_plain(token))
                or (not parts and self.is_word(*_RESERVED))
            ):
                raise self.refused("the name of a table is missing here")
            parts.append(folded(self.skip()))
            if not self.has_mark(TokenType.DOT):
                return listed(parts)

    def query(self, until: str = "") -> str:
        """Take the text up to the end of the statement, or up to the word *until* outside of parentheses."""
        start, end, depth = self.at, self.at, 0
        while not self.at_end and (depth or not (until and self.is_word(until))):
            token = self.skip()
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            end = token.end + 1
        return self.text[start:end]


def is_complete(text: str) -> bool:
    """Return whether *text* ends with a semicolon that ends a statement, and so does not continue on the next line."""
    try:
        tokens = tokens_of(text)
    except OptionError:  # a quotation mark is open
        return False
    return bool(tokens) and tokens[-1].token_type is TokenType.SEMICOLON


def _is_plain(token: Token) -> bool:
    """Return whether *token* is a word without quotation marks."""
    word = token.text
    return token.token_type is not TokenType.STRING and (word[:1].isalpha() or word[:1] == "_")
