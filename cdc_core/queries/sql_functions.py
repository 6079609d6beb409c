"""Functions that a changefeed defines for its query, as texts: `(amount, rate) -> amount * (1 - rate)`.

A call is expanded into the query. So a body has the rules of a query's expressions, and knows its parameters and other
functions, in whatever order they are written, but no columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cdc_core.errors import OptionError
from cdc_core.function_registration import FunctionRegistration
from cdc_core.options import did_you_mean
from cdc_core.queries.dialect import folded, tokens_of
from cdc_core.queries.expressions import Expressions, is_name
from cdc_core.queries.functions import refused_name
from cdc_core.queries.query import PREVIOUS, Fragment, Reference, SqlFunction
from cdc_core.queries.refusals import refusal

_SHAPE = "write it as (parameter, …) -> expression"


def parse_functions(
    texts: Sequence[tuple[str, str]], installed: Sequence[FunctionRegistration]
) -> tuple[SqlFunction, ...]:
    """Return the functions that pairs of a name and a text define, each after those that it calls.

    They may call those *installed* too.

    Raises: OptionError, which names the function and shows the place of what it refuses.
    """
    headers = [_header(name, text) for name, text in texts]
    arities = {header.name: len(header.parameters) for header in headers}
    arities |= {each.name: len(each.arguments) for each in installed}
    functions = {header.name: _function(header, arities) for header in headers}
    ordered: dict[str, SqlFunction] = {}
    for name in sorted(functions):
        _add(name, functions, ordered, ())
    return tuple(ordered.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    """A function before its body is read, which begins at token `place`."""

    name: str
    text: str
    tokens: Sequence[Token]
    parameters: tuple[str, ...]
    place: int


def _header(name: str, text: str) -> _Header:
    reason = refused_name(name)
    if reason is not None:
        raise OptionError(f"function '{name}' cannot have this name: {reason}")
    what = f"function {name}"
    tokens = tokens_of(text, what=what)
    arrow = next((place for place, token in enumerate(tokens) if token.token_type is TokenType.ARROW), None)
    if arrow is None:
        raise refusal(text, 0, f"-> is missing; {_SHAPE}", what=what)
    opening, closing = TokenType.L_PAREN, TokenType.R_PAREN
    if arrow < 2 or (tokens[0].token_type, tokens[arrow - 1].token_type) != (opening, closing):
        raise refusal(text, 0, f"the parameters are not in parentheses; {_SHAPE}", what=what)
    parameters: list[str] = []
    for place, token in enumerate(tokens[1 : arrow - 1]):
        if place % 2 == 1 and token.token_type is TokenType.COMMA:
            continue
        if place % 2 == 1 or not is_name(token):
            raise refusal(text, token.start, f"this is not the name of a parameter; {_SHAPE}", what=what)
        if folded(token) in parameters:
            raise refusal(text, token.start, f"two parameters are named {folded(token)}", what=what)
        if folded(token) in PREVIOUS:
            raise refusal(text, token.start, f"{token.text} is the row before the change", what=what)
        parameters.append(folded(token))
    if parameters and len(parameters) * 2 - 1 != arrow - 2:
        raise refusal(text, tokens[arrow - 1].start, f"the name of a parameter is missing; {_SHAPE}", what=what)
    if arrow + 1 == len(tokens):
        raise refusal(text, len(text), f"the expression after -> is missing; {_SHAPE}", what=what)
    return _Header(name=name, text=text, tokens=tokens, parameters=tuple(parameters), place=arrow + 1)


def _function(header: _Header, arities: Mapping[str, int]) -> SqlFunction:
    expressions = Expressions(header.text, header.tokens, what=f"function {header.name}", functions=arities)
    last = len(header.tokens)
    for token in header.tokens[header.place :]:
        if token.token_type is TokenType.SEMICOLON:
            raise expressions.refused(token, "text follows the end of the expression")
    tree = expressions.tree(header.place, last)
    if isinstance(tree, exp.Alias | exp.Aliases):
        raise expressions.refused(header.tokens[header.place], "an expression in a function has no name; remove it")
    body = _with_parameters(expressions.fragment(header.place, last), header, expressions)
    return SqlFunction(name=header.name, parameters=header.parameters, body=body)


def _with_parameters(fragment: Fragment, header: _Header, expressions: Expressions) -> Fragment:
    """Return *fragment* with parameters in place of columns. Raises: OptionError for what is not a parameter."""
    return replace(
        fragment, references=tuple(_parameters(reference, header, expressions) for reference in fragment.references)
    )


def _parameters(reference: Reference, header: _Header, expressions: Expressions) -> Reference:
    if reference.kind == "call":
        arguments = (_with_parameters(argument, header, expressions) for argument in reference.arguments)
        return replace(reference, arguments=tuple(arguments))
    if reference.kind in ("previous column", "previous row"):
        reason = "a function sees the row before the change only through its parameters; add one"
        raise expressions.refused_at(reference.start, reason)
    if reference.kind != "column":
        return reference
    name = reference.qualifier[0] if reference.qualifier else reference.name
    if name not in header.parameters:
        raise expressions.refused_at(
            reference.start,
            f"'{name}' is not a parameter of the function{did_you_mean(name, header.parameters)}",
        )
    first = next(token for token in header.tokens if token.start == reference.start)
    return replace(reference, kind="parameter", name=name, end=first.end + 1, qualifier=())


def _add(
    name: str, functions: Mapping[str, SqlFunction], ordered: dict[str, SqlFunction], callers: tuple[str, ...]
) -> None:
    """Add a function to *ordered* after those that it calls. Raises: OptionError when it is among its *callers*."""
    for reference in functions[name].body.all_references:
        if reference.kind != "call" or reference.name not in functions:
            continue
        chain = (*callers, name)
        if reference.name in chain:
            first, *others = (*chain[chain.index(reference.name) :], reference.name)
            reason = (
                f"{first} calls {', which calls '.join(others)}, in an endless recursion; remove one of these calls"
            )
            raise refusal(functions[name].body.query, reference.start, reason, what=f"function {name}")
        if reference.name not in ordered:
            _add(reference.name, functions, ordered, chain)
    ordered.setdefault(name, functions[name])
