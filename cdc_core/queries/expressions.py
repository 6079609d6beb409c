"""Expressions of a query or of the body of one of its functions, taken out of the text with what they refer to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Literal

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cdc_core.options import counted
from cdc_core.queries.dialect import folded, parsed, place_of
from cdc_core.queries.functions import (
    CLOCK_WORDS,
    NO_PARENTHESES,
    RANDOM,
    TIME_OF_DAY,
    clock_word,
    no_date,
    refused_function,
)
from cdc_core.queries.query import EVENT_FUNCTIONS, PREVIOUS, Fragment, Reference
from cdc_core.queries.refusals import refusal
from cdc_core.sql_names import fold

_TIMES = (TokenType.DATE, TokenType.TIMESTAMP, TokenType.TIMESTAMPLTZ, TokenType.TIMESTAMPNTZ, TokenType.TIMESTAMPTZ)
_ZONED = (TokenType.TIMESTAMP, TokenType.TIMESTAMPLTZ, TokenType.TIMESTAMPTZ)
_TIME_TYPES = frozenset(type_.name for type_ in _TIMES)
_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})


class Expressions:
    """The expressions in *text*, by places of its *tokens*.

    *what* the text is, for errors. Calls of *functions* become references; each has the number of its arguments.
    """

    def __init__(self, text: str, tokens: Sequence[Token], *, what: str, functions: Mapping[str, int]) -> None:
        self.text = text
        self.tokens = tokens
        self.depths = list(_depths(text, tokens, what))
        """For each token, how many brackets are open around it."""
        self._what = what
        self._functions = functions

    def refused(self, token: Token, reason: str) -> Exception:
        return self.refused_at(token.start, reason)

    def refused_at(self, at: int, reason: str) -> Exception:
        return refusal(self.text, at, reason, what=self._what)

    def tree(self, first: int, last: int) -> exp.Expr:
        """Return the tree of the expression in tokens *first* to *last*, without *last*. Raises: OptionError."""
        return parsed(self.text, self.tokens[first].start, self.tokens[last - 1].end + 1, what=self._what)

    def fragment(self, first: int, last: int) -> Fragment:
        """Return the expression in these tokens, and what it refers to. Raises: OptionError for what it cannot have."""
        tokens = self.tokens[first:last]
        start, end = tokens[0].start, tokens[-1].end + 1
        for index, token in enumerate(tokens):
            self._refuse_function(token, tokens[index + 1 : index + 3])
            self._refuse_clock_word(token, tokens[index + 1 :])
            if token.text.lower() == "aes_encrypt" and index + 1 < len(tokens):
                self._refuse_random_start(first + index, last)
        tree = self.tree(first, last)
        references = [*self._columns(tree, start), *self._variables(tree, start), *self._event_functions(tokens)]
        references += [*_texts(tokens), *self._comments(tokens)]
        references.sort(key=lambda reference: reference.start)
        inside = [reference for reference in references if start <= reference.start < end]
        return Fragment(query=self.text, start=start, end=end, references=tuple(self._with_calls(first, last, inside)))

    def between_commas(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the places of what commas part in these tokens. Raises: OptionError where there is nothing."""
        start, depth = first, self.depths[first] if first < last else 0
        for place in range(first, last + 1):
            comma = place < last and self.tokens[place].token_type is TokenType.COMMA and self.depths[place] == depth
            if place == last or comma:
                if place == start:
                    raise self.refused_at(self._offset(place), "an expression is missing here")
                yield start, place
                start = place + 1

    def _with_calls(self, first: int, last: int, references: Sequence[Reference]) -> Iterator[Reference]:
        """Yield *references*, those of the tokens, with calls of functions in place of what is within them."""
        place, waiting = first, list(references)
        while place < last:
            if not self._is_call(place, last):
                place += 1
                continue
            closing = next(n for n in range(place + 2, last) if self.depths[n] == self.depths[place])
            start, end = self.tokens[place].start, self.tokens[closing].end + 1
            yield from (reference for reference in waiting if reference.start < start)
            within = [reference for reference in waiting if start <= reference.start < end]
            waiting = [reference for reference in waiting if reference.start >= end]
            yield self._call(place, closing, within)
            place = closing + 1
        yield from waiting

    def _is_call(self, place: int, last: int) -> bool:
        token = self.tokens[place]
        if place + 1 >= last or self.tokens[place + 1].token_type is not TokenType.L_PAREN:
            return False
        of_another = place > 0 and self.tokens[place - 1].token_type is TokenType.DOT
        return not of_another and token.token_type is not TokenType.STRING and folded(token) in self._functions

    def _call(self, place: int, closing: int, references: Sequence[Reference]) -> Reference:
        name, first = folded(self.tokens[place]), place + 2
        arguments = []
        for start, end in self.between_commas(first, closing) if first < closing else ():
            self.tree(start, end)
            begin, stop = self.tokens[start].start, self.tokens[end - 1].end + 1
            mine = [reference for reference in references if begin <= reference.start < stop]
            arguments.append(
                Fragment(query=self.text, start=begin, end=stop, references=tuple(self._with_calls(start, end, mine)))
            )
        wanted = self._functions[name]
        if len(arguments) != wanted:
            raise self.refused(
                self.tokens[place], f"{name} takes {counted(wanted, 'argument')}, but got {len(arguments)}"
            )
        return Reference(
            kind="call",
            name=name,
            start=self.tokens[place].start,
            end=self.tokens[closing].end + 1,
            arguments=tuple(arguments),
            in_lambda=self._in_lambda(place),
        )

    def _refuse_function(self, token: Token, following: Sequence[Token]) -> None:
        if token.token_type is TokenType.SELECT:
            raise self.refused(token, "a query cannot have a subquery")
        if token.token_type is TokenType.OVER:
            raise self.refused(token, "a query cannot have a window function: it sees one change at a time")
        called = bool(following) and following[0].token_type is TokenType.L_PAREN
        if is_quoted(token) and not called:
            return
        if called or token.text.lower() in NO_PARENTHESES:
            arguments = called and len(following) > 1 and following[1].token_type is not TokenType.R_PAREN
            reason = refused_function(token.text, arguments=arguments)
            if reason is not None:
                raise self.refused(token, f"a query cannot call {token.text}: it {reason}")

    def _refuse_clock_word(self, token: Token, following: Sequence[Token]) -> None:
        """Refuse a literal such as DATE 'today'. Spark joins texts that follow each other."""
        if token.token_type in _TIMES:
            text = "".join(each.text for each in takewhile(lambda each: each.token_type is TokenType.STRING, following))
            if CLOCK_WORDS.fullmatch(text):
                raise self.refused(token, clock_word(text))
            if token.token_type in _ZONED and TIME_OF_DAY.match(text):
                raise self.refused(token, no_date(f"'{text.strip()}'"))

    def _refuse_random_start(self, place: int, last: int) -> None:
        """Refuse a call of aes_encrypt which lets Spark choose the bytes to start with."""
        if self.tokens[place + 1].token_type is not TokenType.L_PAREN:
            return
        closing = next((n for n in range(place + 2, last) if self.depths[n] == self.depths[place]), last)
        between = self.between_commas(place + 2, closing) if place + 2 < closing else ()
        given = [self.tokens[begin:end] for begin, end in between]
        texts = [[token.text for token in each if token.token_type is TokenType.STRING] for each in given]
        mode, iv = 2, 4
        has_iv = len(given) > iv and "" not in texts[iv]
        if has_iv or (len(given) > mode and len(given[mode]) == 1 and "ECB" in map(str.upper, texts[mode])):
            return
        reason = f"{RANDOM}; give it an iv, its fifth argument, or the mode 'ECB'"
        raise self.refused(self.tokens[place], f"a query cannot call {self.tokens[place].text}: it {reason}")

    def _columns(self, tree: exp.Expr, start: int) -> Iterator[Reference]:
        for node in tree.walk():
            if isinstance(node, exp.AggFunc):
                name = node.sql_name().lower()
                name = name if name in self.text.lower() else "an aggregate function"
                reason = "it combines many rows, but a query sees one change at a time"
                raise self.refused_at(start, f"a query cannot call {name}: {reason}")
            self._refuse_node(node, start)
            if isinstance(node, exp.Dot) and _is_previous_in_parentheses(node):
                yield self._in_parentheses(node, start)
            elif isinstance(node, exp.Column) and not _is_previous_in_parentheses(_beyond_parentheses(node)):
                yield self._column(node, start)

    def _refuse_node(self, node: exp.Expr, start: int) -> None:
        if isinstance(node, exp.Placeholder | exp.Parameter):
            raise self.refused_at(start, "a query cannot have parameters; write the value")
        if isinstance(node, exp.Query | exp.Values | exp.Table):
            raise self.refused_at(start, "a query cannot have a subquery")
        if isinstance(node, exp.Star):
            raise self.refused_at(start, "* stands for all columns, and cannot be part of an expression")
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
            to = node.to.this
            if getattr(to, "name", "") in _TIME_TYPES and CLOCK_WORDS.fullmatch(str(node.this.this)):
                raise self.refused_at(start, clock_word(str(node.this.this)))

    def _variables(self, tree: exp.Expr, start: int) -> Iterator[Reference]:
        """Yield the variables of lambdas, such as x in x -> x + 1, where they are declared and where they are used."""
        places: dict[int, Reference] = {}
        for node in tree.find_all(exp.Lambda):
            names = {each.name for each in node.expressions if isinstance(each, exp.Identifier)}
            for each in node.find_all(exp.Identifier):
                member = isinstance(each.parent, exp.Dot) and each.arg_key == "expression"
                named = isinstance(each.parent, exp.Anonymous) and each.arg_key == "this"
                if each.name not in names or member or named or isinstance(each.parent, exp.Column | exp.Alias):
                    continue
                begin, end = place_of(self.text, start, each, what=self._what)
                places[begin] = Reference(kind="variable", name=each.name, start=begin, end=end)
        yield from places.values()

    def _in_parentheses(self, node: exp.Dot, start: int) -> Reference:
        """Return the reference that `(cdc_prev).column` is."""
        levels = len(list(node.this.find_all(exp.Paren)))
        reference = self._reference("previous column", [node.this.unnest().this, node.expression], start)
        place = next(place for place, token in enumerate(self.tokens) if token.start == reference.start)
        return replace(reference, start=self.tokens[place - levels].start)

    def _column(self, node: exp.Column, start: int) -> Reference:
        parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
        if len(parts) != len(node.parts):
            self._refuse_node(exp.Star(), start)
        first = parts[0].name.lower()
        if first in PREVIOUS and not parts[0].args.get("quoted"):
            if len(parts) > 2:
                raise self.refused_at(start, f"write {first}.column")
            return self._reference("previous row" if len(parts) == 1 else "previous column", parts, start)
        return self._reference("column", parts, start)

    def _reference(
        self,
        kind: Literal["column", "previous column", "previous row"],
        parts: Sequence[exp.Identifier],
        start: int,
    ) -> Reference:
        words = [part.name if part.args.get("quoted") else fold(part.name) for part in parts]
        places = [place_of(self.text, start, part, what=self._what) for part in parts]
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
            if name not in EVENT_FUNCTIONS or is_quoted(token):
                continue
            if not following or following[0].token_type is not TokenType.L_PAREN:
                continue
            if len(following) < 2 or following[1].token_type is not TokenType.R_PAREN:
                raise self.refused(token, f"{name} takes no arguments; write {name}()")
            yield Reference(kind="function", name=name, start=token.start, end=following[1].end + 1)

    def _comments(self, tokens: Sequence[Token]) -> Iterator[Reference]:
        """Yield the comments, which Spark may end elsewhere."""
        for token, following in pairwise(tokens):
            if self.text[token.end + 1 : following.start].strip():
                yield Reference(kind="comment", name="", start=token.end + 1, end=following.start)

    def _in_lambda(self, place: int) -> bool:
        """Return whether the token at *place* is behind the arrow of a lambda."""
        depth, before_comma = self.depths[place], False
        for index in range(place - 1, -1, -1):
            token, level = self.tokens[index], self.depths[index]
            if level < depth:
                depth, before_comma = level, False
            elif level and level == depth and token.token_type is TokenType.ARROW and not before_comma:
                return True  # that of a function's body has no bracket around it
            elif level == depth and token.token_type is TokenType.COMMA:
                before_comma = True
        return False

    def _offset(self, place: int) -> int:
        return self.tokens[place].start if place < len(self.tokens) else len(self.text)


def _texts(tokens: Sequence[Token]) -> Iterator[Reference]:
    for token in tokens:
        if token.token_type is TokenType.STRING:
            yield Reference(kind="text", name=token.text, start=token.start, end=token.end + 1)


def _depths(text: str, tokens: Sequence[Token], what: str) -> Iterator[int]:
    """Yield for each token how many brackets are open around it. Raises: OptionError when they do not match."""
    opened: list[Token] = []
    for token in tokens:
        if token.token_type in _CLOSING:
            if not opened:
                raise refusal(text, token.start, f"'{token.text}' closes nothing", what=what)
            opened.pop()
        yield len(opened)
        if token.token_type in _OPENING:
            opened.append(token)
    if opened:
        raise refusal(text, opened[-1].start, f"'{opened[-1].text}' is not closed", what=what)


def is_quoted(token: Token) -> bool:
    return token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)


def is_name(token: Token) -> bool:
    """Return whether *token* can be a name: words of SQL that are not names are followed by something else."""
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
