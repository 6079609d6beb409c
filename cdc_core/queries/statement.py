"""The text of a CDC query, taken apart: the table, what is selected of each change, and the condition.

    SELECT item [AS name], … FROM table [[AS] alias] [WHERE condition]

The rules are CockroachDB's (CDC queries): one table, and nothing that needs more than the one change. Expressions stay
text, in which only references are replaced later: what they mean is for Spark to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cdc_core.queries.dialect import parsed, place_of, tokens_of
from cdc_core.queries.functions import EVENT_FUNCTIONS, NO_PARENTHESES, PREVIOUS, refused_function
from cdc_core.queries.names import folded, listed
from cdc_core.queries.query import Fragment, Item, Query, Reference
from cdc_core.queries.refusals import refusal

__all__ = ["parse_query"]

_SHAPE = "write SELECT … FROM table WHERE condition"
_CLOCK_WORDS = ("now", "today", "tomorrow", "yesterday")
"""What Spark takes for a time when it casts a text."""
_MORE = "there is more after the end of the query; write one SELECT"
_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})
_SETS = ("UNION", "INTERSECT", "EXCEPT")
_CLAUSES = (
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "WINDOW",
    "QUALIFY",
    "CLUSTER",
    "DISTRIBUTE",
    "SORT",
)
_REFUSED_WORDS = frozenset((*_SETS, *_CLAUSES, "SORT"))


@lru_cache(maxsize=64)
def parse_query(text: str) -> Query:
    """Return the query that *text* is. Raises: OptionError, which shows the place of what it refuses."""
    tokens = list(tokens_of(text))
    if tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens or tokens[0].token_type is not TokenType.SELECT:
        reason = f"{tokens[0].text.upper()} cannot begin a query" if tokens else "the query is empty"
        raise refusal(text, tokens[0].start if tokens else 0, f"{reason}; {_SHAPE}")
    return _Parser(text, tokens).query()


class _Parser:
    """Reads one query, a token at a time."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._depths = list(_depths(text, tokens))

    def query(self) -> Query:
        text, tokens = self._text, self._tokens
        if len(tokens) > 1 and not _is_quoted(tokens[1]) and tokens[1].text.upper() in ("DISTINCT", "ALL"):
            raise self._refused_clause(tokens[1])
        from_ = self._find_from()
        self._refuse_clauses(1, from_)
        items = tuple(self._item(first, last) for first, last in self._between_commas(1, from_))
        table, place = self._name(from_ + 1)
        names = [table[index:] for index in range(len(table))]
        if place < len(tokens) and tokens[place].token_type is TokenType.ALIAS:
            place += 1
            if place == len(tokens) or not _is_name(tokens[place]):
                raise refusal(text, self._offset(place), "the table's alias is missing here")
        if place < len(tokens) and _is_name(tokens[place]) and not _is_clause(tokens[place]):
            names = [(folded(tokens[place]),)]
            place += 1
        if names[0][-1] in PREVIOUS:
            reason = f"{names[0][-1]} is the row before the change; give the table another alias"
            raise self._refused(tokens[place - 1], reason)
        condition = None
        if place < len(tokens):
            if tokens[place].token_type is not TokenType.WHERE:
                raise self._after_table(tokens[place])
            self._refuse_clauses(place + 1, len(tokens))
            if place + 1 == len(tokens):
                raise refusal(text, self._offset(place + 1), "the condition after WHERE is missing")
            condition = self._fragment(place + 1, len(tokens))
        return Query(
            text=text,
            table=listed(table),
            names=tuple(names),
            items=items,
            condition=condition,
        )

    def _find_from(self) -> int:
        """Return the place of FROM, which is not that of IS DISTINCT FROM."""
        for place, token in enumerate(self._tokens):
            before = self._tokens[place - 1].token_type
            if token.token_type is TokenType.FROM and not self._depths[place] and before is not TokenType.DISTINCT:
                return place
        raise refusal(self._text, len(self._text), f"FROM is missing; {_SHAPE}")

    def _refuse_clauses(self, first: int, last: int) -> None:
        for place in range(first, last):
            token = self._tokens[place]
            if token.token_type is TokenType.SEMICOLON:
                raise self._refused(token, _MORE)
            if not self._depths[place] and _is_clause(token) and not self._is_part_of_name(place):
                raise self._refused_clause(token)

    def _is_part_of_name(self, place: int) -> bool:
        around = (self._tokens[place - 1], *self._tokens[place + 1 : place + 2])
        return any(token.token_type is TokenType.DOT for token in around)

    def _after_table(self, token: Token) -> Exception:
        word = token.text.upper()
        if _is_clause(token):
            return self._refused_clause(token)
        if token.token_type is TokenType.SEMICOLON:
            return self._refused(token, _MORE)
        if token.token_type is TokenType.COMMA or "JOIN" in word or word in ("CROSS", "INNER", "LEFT", "RIGHT", "FULL"):
            return self._refused(token, "a query has one table; join the changes where they arrive")
        return self._refused(token, f"{word} cannot follow the table; {_SHAPE}")

    def _refused_clause(self, token: Token) -> Exception:
        word = token.text.upper()
        return self._refused(token, f"a query cannot have {word}: it sees one change at a time; {_SHAPE}")

    def _name(self, place: int) -> tuple[tuple[str, ...], int]:
        """Return the parts of the table's name at *place*, and the place after it."""
        if place < len(self._tokens) and self._tokens[place].token_type is TokenType.L_PAREN:
            raise self._refused(self._tokens[place], "a query cannot have a sub-query; name the table")
        parts = []
        while True:
            if place >= len(self._tokens) or not _is_name(self._tokens[place]):
                raise refusal(self._text, self._offset(place), "the name of the table is missing here")
            parts.append(folded(self._tokens[place]))
            place += 1
            if place >= len(self._tokens) or self._tokens[place].token_type is not TokenType.DOT:
                return tuple(parts), place
            place += 1

    def _between_commas(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        start = first
        for place in range(first, last + 1):
            at_end = place == last
            if at_end or (self._tokens[place].token_type is TokenType.COMMA and not self._depths[place]):
                if place == start:
                    raise refusal(self._text, self._offset(place), "an expression is missing here")
                yield start, place
                start = place + 1

    def _item(self, first: int, last: int) -> Item:
        tokens = self._tokens[first:last]
        if tokens[-1].token_type is TokenType.STAR and (len(tokens) == 1 or tokens[-2].token_type is TokenType.DOT):
            previous = next((token.text for token in tokens if token.text.lower() in PREVIOUS), None)
            if previous is not None:
                raise self._refused(tokens[0], f"name the columns of {previous}, as in {previous}.id AS old_id")
            if all(map(_is_name, tokens[:-1:2])):
                return Item(start=tokens[0].start, qualifier=tuple(map(folded, tokens[:-1:2])))
        if tokens[0].token_type is TokenType.ALIAS:
            raise self._refused(tokens[0], "an expression is missing here")
        tree = parsed(self._text, tokens[0].start, tokens[-1].end + 1)
        if isinstance(tree, exp.Aliases):
            raise self._refused(tokens[0], "an expression has one name; write AS name")
        name = ""
        if isinstance(tree, exp.Alias):
            name = folded(tokens[-1])
            last -= 1 + (tokens[-2].token_type is TokenType.ALIAS)
        fragment = self._fragment(first, last)
        whole = fragment.references[0] if len(fragment.references) == 1 else None
        column = whole if whole and (whole.start, whole.end) == (fragment.start, fragment.end) else None
        if column is not None and column.kind != "column":
            column = None
        name = name or self._given_name(tree, first, last)
        if not name:
            raise self._refused(tokens[0], f"give this expression a name: {fragment.text} AS name")
        return Item(start=fragment.start, fragment=fragment, name=name, column=column)

    def _given_name(self, tree: exp.Expr, first: int, last: int) -> str:
        """Return the name of an expression without AS: that of its column or its function; `` for any other."""
        if isinstance(tree, exp.Column | exp.Dot):
            identifier = tree.parts[-1]
            return str(identifier.name if identifier.args.get("quoted") else identifier.name.lower())
        if isinstance(tree, exp.Cast):
            return self._given_name(tree.this, first, last)
        call = isinstance(tree, exp.Func) and self._tokens[first + 1].token_type is TokenType.L_PAREN
        if call and all(self._depths[first + 2 : last - 1]):  # nothing follows the closing parenthesis
            return str(self._tokens[first].text.lower())
        return ""

    def _fragment(self, first: int, last: int) -> Fragment:
        tokens = self._tokens[first:last]
        start, end = tokens[0].start, tokens[-1].end + 1
        for index, token in enumerate(tokens):
            self._refuse_function(token, tokens[index + 1 : index + 3])
        tree = parsed(self._text, start, end)
        references = [*self._columns(tree, start), *self._event_functions(tokens)]
        references += [*_texts(tokens), *self._comments(tokens)]
        references.sort(key=lambda reference: reference.start)
        return Fragment(query=self._text, start=start, end=end, references=tuple(references))

    def _refuse_function(self, token: Token, following: Sequence[Token]) -> None:
        if token.token_type is TokenType.SELECT:
            raise self._refused(token, "a query cannot have a sub-query")
        if token.token_type is TokenType.OVER:
            raise self._refused(token, "a query cannot have a window function: it sees one change at a time")
        called = bool(following) and following[0].token_type is TokenType.L_PAREN
        if _is_quoted(token) and not called:
            return
        if called or token.text.lower() in NO_PARENTHESES:
            arguments = called and len(following) > 1 and following[1].token_type is not TokenType.R_PAREN
            reason = refused_function(token.text, arguments=arguments)
            if reason is not None:
                raise self._refused(token, f"a query cannot call {token.text}: it {reason}")

    def _columns(self, tree: exp.Expr, start: int) -> Iterator[Reference]:
        for node in tree.walk():
            if isinstance(node, exp.AggFunc):
                name = node.sql_name().lower()
                reason = "it takes many rows, and a query sees one change at a time"
                raise refusal(self._text, start, f"a query cannot call {name}: {reason}")
            self._refuse_node(node, start)
            if isinstance(node, exp.Dot) and _is_previous_in_parentheses(node):
                yield self._in_parentheses(node, start)
            elif isinstance(node, exp.Column) and not _is_previous_in_parentheses(_beyond_parentheses(node)):
                yield self._column(node, start)

    def _refuse_node(self, node: exp.Expr, start: int) -> None:
        if isinstance(node, exp.Placeholder | exp.Parameter):
            raise refusal(self._text, start, "a query has no parameters; write the value")
        if isinstance(node, exp.Query | exp.Values | exp.Table):
            raise refusal(self._text, start, "a query cannot have a sub-query")
        if isinstance(node, exp.Star):
            raise refusal(self._text, start, "* stands for all columns, and cannot be part of an expression")
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):
            word = str(node.this.this).strip().lower()
            if node.this.is_string and word.startswith(_CLOCK_WORDS):
                raise refusal(
                    self._text, start, f"'{word}' reads the clock; the time of the commit is statement_timestamp()"
                )

    def _in_parentheses(self, node: exp.Dot, start: int) -> Reference:
        """Return the reference that `(cdc_prev).column` is."""
        levels = len(list(node.this.find_all(exp.Paren)))
        reference = self._reference("previous column", [node.this.unnest().this, node.expression], start)
        place = next(place for place, token in enumerate(self._tokens) if token.start == reference.start)
        return replace(reference, start=self._tokens[place - levels].start)

    def _column(self, node: exp.Column, start: int) -> Reference:
        parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
        if len(parts) != len(node.parts):
            self._refuse_node(exp.Star(), start)
        first = parts[0].name.lower()
        if first in PREVIOUS and not parts[0].args.get("quoted"):
            if len(parts) > 2:
                raise refusal(self._text, start, f"write {first}.column")
            return self._reference("previous row" if len(parts) == 1 else "previous column", parts, start)
        return self._reference("column", parts, start)

    def _reference(
        self,
        kind: Literal["column", "previous column", "previous row"],
        parts: Sequence[exp.Identifier],
        start: int,
    ) -> Reference:
        words = [part.name if part.args.get("quoted") else part.name.lower() for part in parts]
        places = [place_of(self._text, start, part) for part in parts]
        return Reference(
            kind=kind,
            name=words[-1],
            start=places[0][0],
            end=places[-1][1],
            quoted=bool(parts[-1].args.get("quoted")),
            qualifier=tuple(words[:-1]),
        )

    def _event_functions(self, tokens: Sequence[Token]) -> Iterator[Reference]:
        for index, token in enumerate(tokens):
            name = token.text.lower()
            following = tokens[index + 1 : index + 3]
            if name not in EVENT_FUNCTIONS or _is_quoted(token):
                continue
            if not following or following[0].token_type is not TokenType.L_PAREN:
                continue
            if len(following) < 2 or following[1].token_type is not TokenType.R_PAREN:
                raise self._refused(token, f"{name} takes no arguments; write {name}()")
            yield Reference(kind="function", name=name, start=token.start, end=following[1].end + 1)

    def _comments(self, tokens: Sequence[Token]) -> Iterator[Reference]:
        """Yield the comments, which Spark may end elsewhere."""
        for token, following in pairwise(tokens):
            if self._text[token.end + 1 : following.start].strip():
                yield Reference(kind="comment", name="", start=token.end + 1, end=following.start)

    def _refused(self, token: Token, reason: str) -> Exception:
        return refusal(self._text, token.start, reason)

    def _offset(self, place: int) -> int:
        return self._tokens[place].start if place < len(self._tokens) else len(self._text)


def _texts(tokens: Sequence[Token]) -> Iterator[Reference]:
    for token in tokens:
        if token.token_type is TokenType.STRING:
            yield Reference(kind="text", name=token.text, start=token.start, end=token.end + 1)


def _depths(text: str, tokens: Sequence[Token]) -> Iterator[int]:
    """Yield for each token how many brackets are open around it. Raises: OptionError when they do not match."""
    opened: list[Token] = []
    for token in tokens:
        if token.token_type in _CLOSING:
            if not opened:
                raise refusal(text, token.start, f"'{token.text}' closes nothing")
            opened.pop()
        yield len(opened)
        if token.token_type in _OPENING:
            opened.append(token)
    if opened:
        raise refusal(text, opened[-1].start, f"'{opened[-1].text}' is not closed")


def _is_quoted(token: Token) -> bool:
    return token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)


def _is_clause(token: Token) -> bool:
    return not _is_quoted(token) and token.text.upper().partition(" ")[0] in _REFUSED_WORDS


def _is_name(token: Token) -> bool:
    """Return whether *token* can be a name: words of SQL that are no names are followed by something else."""
    if token.token_type is TokenType.IDENTIFIER:
        return True
    word = token.text
    keywords = (TokenType.WHERE, TokenType.FROM, TokenType.SELECT, TokenType.ALIAS, TokenType.STRING)
    join = word.upper() in ("JOIN", "CROSS", "INNER", "LEFT", "RIGHT", "FULL", "NATURAL", "TABLESAMPLE", "LATERAL")
    return token.token_type not in keywords and not join and (word[:1].isalpha() or word[:1] == "_")


def _beyond_parentheses(node: exp.Expr) -> exp.Expr | None:
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return parent


def _is_previous_in_parentheses(node: exp.Expr | None) -> bool:
    if not isinstance(node, exp.Dot) or not isinstance(node.expression, exp.Identifier):
        return False
    inner = node.this.unnest() if isinstance(node.this, exp.Paren) else None
    return isinstance(inner, exp.Column) and inner.name.lower() in PREVIOUS and len(inner.parts) == 1
