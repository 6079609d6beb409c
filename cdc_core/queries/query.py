"""A CDC query as values: expressions as text, and the places in them that stand for something of a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from cdc_core.function_registration import FunctionRegistration
from cdc_core.rows import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A place in a fragment that stands for something of the change: a column, a row, or the value of a function.

    Likewise a text in quotation marks, whose `name` is what it means: Spark writes quotation marks in it otherwise. And
    a comment; the variable of a lambda; and the call of a function of the changefeed, with its `arguments`, whose own
    references are not among those of the fragment. In the body of a function there are parameters and no columns.

    `start` and `end` are offsets in the query. `name` is that of the column or function, `quoted` says whether it was
    in quotes, and `qualifier` has the words before it, as `public.orders` in `public.orders.id`.
    """

    kind: Literal[
        "column", "previous column", "previous row", "function", "text", "comment", "variable", "call", "parameter"
    ]
    name: str
    start: int
    end: int
    quoted: bool = False
    qualifier: tuple[str, ...] = ()
    arguments: tuple[Fragment, ...] = ()
    in_lambda: bool = False
    """Of a call: whether it is made for each member of an array or a map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """An expression of a query or of a function: `query[start:end]`, and what it refers to, in order."""

    query: str
    start: int
    end: int
    references: tuple[Reference, ...]

    @property
    def text(self) -> str:
        return self.query[self.start : self.end]

    @property
    def all_references(self) -> Iterator[Reference]:
        """The references, and those in arguments of calls."""
        for reference in self.references:
            yield reference
            for argument in reference.arguments:
                yield from argument.all_references

    def rendered(self, replacement: Callable[[Reference], str]) -> str:
        """Return the text with each reference replaced."""
        parts, place = [], self.start
        for reference in self.references:
            parts += [self.query[place : reference.start], replacement(reference)]
            place = reference.end
        return "".join([*parts, self.query[place : self.end]])


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFunction:
    """A function that the changefeed defines: a call is its `body`, with the arguments in place of `parameters`."""

    name: str
    parameters: tuple[str, ...]
    body: Fragment


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What is selected: all columns where `fragment` is None, otherwise an expression under `name`.

    `column` is the reference of an item that is a column and nothing else.
    """

    start: int
    fragment: Fragment | None = None
    name: str = ""
    column: Reference | None = None
    qualifier: tuple[str, ...] = ()

    @property
    def is_topic(self) -> bool:
        """Whether it is the row's topic: an expression by that name, and not a column among all of a table."""
        return self.fragment is not None and self.name == TOPIC_COLUMN


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query without what only the table's columns can tell. `table` is as it is listed under `tables`."""

    text: str
    table: str
    names: tuple[tuple[str, ...], ...]
    """What a column may be qualified with."""
    items: tuple[Item, ...]
    condition: Fragment | None
    functions: tuple[SqlFunction, ...] = ()
    installed: tuple[FunctionRegistration, ...] = ()
    """Python functions that it may call."""

    def function(self, name: str) -> SqlFunction | FunctionRegistration:
        known: tuple[SqlFunction | FunctionRegistration, ...] = (*self.functions, *self.installed)
        return next(function for function in known if function.name == name)

    @property
    def routes(self) -> bool:
        """Whether it gives each row a topic."""
        return any(item.is_topic for item in self.items)

    @property
    def fragments(self) -> Iterator[Fragment]:
        yield from (item.fragment for item in self.items if item.fragment is not None)
        if self.condition is not None:
            yield self.condition

    def refers_to(self, *kinds: str, name: str | None = None) -> bool:
        """Return whether a reference is of one of *kinds*, and of that *name* if there is one."""
        return any(
            reference.kind in kinds and name in (None, reference.name)
            for fragment in self.fragments
            for reference in fragment.all_references
        )


PREVIOUS = frozenset({"cdc_prev", "crdb_internal_cdc_prev"})
"""Names of the row before the change."""
TOPIC_COLUMN = "cdc_topic"
"""The name of an item that is the row's topic, and no column of the message."""
MVCC_COLUMN = "crdb_internal_mvcc_timestamp"
"""A column that every table has in a query: the commit timestamp of the row version, as a decimal."""

EVENT_OP = ""
"""In comparisons, what stands for `event_op()`: no column has this name."""
_COMMIT_TIME = "timestamp_micros(`wall` div 1000)"
EVENT_FUNCTIONS: Mapping[str, str] = {
    "event_op": f"(CASE `op` WHEN {Op.UPDATE:d} THEN 'update' WHEN {Op.DELETE:d} THEN 'delete' ELSE 'insert' END)",
    "statement_timestamp": _COMMIT_TIME,
    "transaction_timestamp": _COMMIT_TIME,
}
"""Functions without arguments that say something about the change, and the SQL over the columns layout for each."""
