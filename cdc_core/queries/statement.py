"""The text of a CDC query, taken apart: the table, what is selected of each change, and the condition.

    SELECT item [AS name], … FROM table [[AS] alias] [WHERE condition]

The rules are CockroachDB's (CDC queries): one table, and nothing that needs more than the one change. Expressions stay
text, in which only references are replaced later: what they mean is for Spark to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cdc_core.function_registration import FunctionRegistration
from cdc_core.queries.dialect import folded, tokens_of
from cdc_core.queries.expressions import Expressions, is_name, is_quoted
from cdc_core.queries.query import PREVIOUS, Item, Query, SqlFunction
from cdc_core.queries.refusals import refusal
from cdc_core.queries.sql_functions import parse_functions
from cdc_core.sql_names import fold, listed

_SHAPE = "write SELECT … FROM table WHERE condition"
_MORE = "text follows the end of the query; write one SELECT"
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
def parse_query(
    text: str, functions: tuple[tuple[str, str], ...] = (), installed: tuple[FunctionRegistration, ...] = ()
) -> Query:
    """Return the query that *text* is. It may call *functions*, pairs of a name and a text, and those *installed*.

    A function of the changefeed hides one of the same name that is installed.

    Raises: OptionError, which shows the place of what it refuses.
    """
    own = {name for name, _ in functions}
    installed = tuple(each for each in installed if each.name not in own)
    known = parse_functions(functions, installed)
    tokens = list(tokens_of(text))
    if tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens or tokens[0].token_type is not TokenType.SELECT:
        reason = f"{tokens[0].text.upper()} cannot begin a query" if tokens else "the query is empty"
        raise refusal(text, tokens[0].start if tokens else 0, f"{reason}; {_SHAPE}")
    return _Parser(text, tokens, known, installed).query()


class _Parser:
    """Reads one query, a token at a time."""

    def __init__(
        self,
        text: str,
        tokens: Sequence[Token],
        functions: Sequence[SqlFunction],
        installed: Sequence[FunctionRegistration],
    ) -> None:
        self._text = text
        self._tokens = tokens
        self._functions = functions
        self._installed = installed
        arities = {each.name: len(each.parameters) for each in functions}
        arities |= {each.name: len(each.arguments) for each in installed}
        self._expressions = Expressions(text, tokens, what="query", functions=arities)

    def query(self) -> Query:
        text, tokens = self._text, self._tokens
        if len(tokens) > 1 and not is_quoted(tokens[1]) and tokens[1].text.upper() in ("DISTINCT", "ALL"):
            raise self._refused_clause(tokens[1])
        from_ = self._find_from()
        self._refuse_clauses(1, from_)
        items = tuple(self._item(first, last) for first, last in self._expressions.between_commas(1, from_))
        table, place = self._name(from_ + 1)
        names = [table[index:] for index in range(len(table))]
        if place < len(tokens) and tokens[place].token_type is TokenType.ALIAS:
            place += 1
            if place == len(tokens) or not is_name(tokens[place]):
                raise refusal(text, self._offset(place), "the table's alias is missing here")
        if place < len(tokens) and is_name(tokens[place]) and not _is_clause(tokens[place]):
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
            condition = self._expressions.fragment(place + 1, len(tokens))
        return Query(
            text=text,
            table=listed(table),
            names=tuple(names),
            items=items,
            condition=condition,
            functions=tuple(self._functions),
            installed=tuple(self._installed),
        )

    def _find_from(self) -> int:
        """Return the place of FROM, which is not that of IS DISTINCT FROM."""
        for place, token in enumerate(self._tokens):
            before = self._tokens[place - 1].token_type
            if (
                token.token_type is TokenType.FROM
                and not self._expressions.depths[place]
                and before is not TokenType.DISTINCT
            ):
                return place
        raise refusal(self._text, len(self._text), f"FROM is missing; {_SHAPE}")

    def _refuse_clauses(self, first: int, last: int) -> None:
        for place in range(first, last):
            token = self._tokens[place]
            if token.token_type is TokenType.SEMICOLON:
                raise self._refused(token, _MORE)
            if not self._expressions.depths[place] and _is_clause(token) and not self._is_part_of_name(place):
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
            return self._refused(token, "a query reads one table; join the changes at the destination")
        return self._refused(token, f"{word} cannot follow the table; {_SHAPE}")

    def _refused_clause(self, token: Token) -> Exception:
        word = token.text.upper()
        return self._refused(token, f"a query cannot have {word}: it sees one change at a time; {_SHAPE}")

    def _name(self, place: int) -> tuple[tuple[str, ...], int]:
        """Return the parts of the table's name at *place*, and the place after it."""
        if place < len(self._tokens) and self._tokens[place].token_type is TokenType.L_PAREN:
            raise self._refused(self._tokens[place], "a query cannot have a subquery; name the table")
        if [token.text.upper() for token in self._tokens[place : place + 1] if not is_quoted(token)] == ["ONLY"]:
            raise self._refused(self._tokens[place], "a query cannot have ONLY; name the table alone")
        parts = []
        while True:
            if place >= len(self._tokens) or not is_name(self._tokens[place]):
                raise refusal(self._text, self._offset(place), "the name of the table is missing here")
            parts.append(folded(self._tokens[place]))
            place += 1
            if place >= len(self._tokens) or self._tokens[place].token_type is not TokenType.DOT:
                return tuple(parts), place
            place += 1

    def _item(self, first: int, last: int) -> Item:
        tokens = self._tokens[first:last]
        if tokens[-1].token_type is TokenType.STAR and (len(tokens) == 1 or tokens[-2].token_type is TokenType.DOT):
            previous = next((token.text for token in tokens if token.text.lower() in PREVIOUS), None)
            if previous is not None:
                raise self._refused(tokens[0], f"name the columns of {previous}, as in {previous}.id AS old_id")
            if all(map(is_name, tokens[:-1:2])):
                return Item(start=tokens[0].start, qualifier=tuple(map(folded, tokens[:-1:2])))
        if tokens[0].token_type is TokenType.ALIAS:
            raise self._refused(tokens[0], "an expression is missing here")
        tree = self._expressions.tree(first, last)
        if isinstance(tree, exp.Aliases):
            raise self._refused(tokens[0], "an expression has one name; write AS name")
        name = ""
        if isinstance(tree, exp.Alias):
            name = folded(tokens[-1])
            last -= 1 + (tokens[-2].token_type is TokenType.ALIAS)
        fragment = self._expressions.fragment(first, last)
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
            return str(identifier.name if identifier.args.get("quoted") else fold(identifier.name))
        if isinstance(tree, exp.Cast):
            return self._given_name(tree.this, first, last)
        call = isinstance(tree, exp.Func) and self._tokens[first + 1].token_type is TokenType.L_PAREN
        if call and all(self._expressions.depths[first + 2 : last - 1]):  # nothing follows the closing parenthesis
            return str(self._tokens[first].text.lower())
        return ""

    def _refused(self, token: Token, reason: str) -> Exception:
        return refusal(self._text, token.start, reason)

    def _offset(self, place: int) -> int:
        return self._tokens[place].start if place < len(self._tokens) else len(self._text)


def _is_clause(token: Token) -> bool:
    return not is_quoted(token) and token.text.upper().partition(" ")[0] in _REFUSED_WORDS
