"""Binds a query to one version of its table: finds its columns, and writes its SQL (`cdc_core.queries.bound_query`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from cdc_core.errors import ConfigError
from cdc_core.function_registration import FunctionRegistration
from cdc_core.options import did_you_mean
from cdc_core.queries.bound_query import BoundQuery, Output, PythonCall
from cdc_core.queries.query import (
    EVENT_FUNCTIONS,
    MVCC_COLUMN,
    PREVIOUS,
    TOPIC_COLUMN,
    Fragment,
    Item,
    Query,
    Reference,
)
from cdc_core.queries.refusals import refusal
from cdc_core.restriction import Comparison
from cdc_core.schema import ColumnType, Kind, TableSchema

_MVCC = (
    "CAST(concat(coalesce(`mvcc_wall`, `wall`), '.', lpad(coalesce(`mvcc_logical`, `logical`), 10, '0'))"
    " AS DECIMAL(30, 10))"
)
_MAX_DIGITS = 38
_ANY_DECIMAL = "DECIMAL(38, 18)"
"""What numbers of a column without a declared precision are in an expression."""
_MAX_SQL = 200_000
"""Characters of an expression: functions that call functions could make it arbitrarily long."""


def bind(query: Query, schema: TableSchema, *, number: int = 0) -> BoundQuery:
    """Return *query* over *schema*. Raises: OptionError, which shows the place of what the table does not have."""
    return _Binder(query, schema, number).bound()


class _Binder:
    def __init__(self, query: Query, schema: TableSchema, number: int) -> None:
        self._query = query
        self._schema = schema
        self._row = f"`v{number}`"
        self._number = number
        self._names = [column.name for column in schema.columns]
        self._typed: dict[str, None] = {}
        self._previous: dict[str, None] = {}
        self._calls: dict[tuple[str, tuple[str, ...]], PythonCall] = {}
        self._used: dict[str, None] = {}
        """The columns of calls that the expression at hand uses."""

    def bound(self) -> BoundQuery:
        query, schema = self._query, self._schema
        taken = next((name for name in self._names if name == "cdc_prev"), None)
        if taken is not None and query.refers_to("previous column", "previous row"):
            raise ConfigError(
                f"query: table {schema.name} has its own column named cdc_prev, so a query cannot use the row before"
                " the change; rename that column"
            )
        outputs = [output for item in query.items if not item.is_topic for output in self._outputs(item)]
        topic = self._topic()
        if not outputs:
            raise refusal(
                query.text, query.items[0].start, "cdc_topic is not part of the message; select other columns as well"
            )
        names: dict[str, Output] = {}
        for output in outputs:
            if output.name in names:
                raise refusal(query.text, output.at, f"two columns are named {output.name}; rename one of them with AS")
            names[output.name] = output
        by_outputs, self._typed = tuple(self._typed), {}
        condition = None if query.condition is None else self._computed(query.condition, "WHERE")
        typed = tuple(dict.fromkeys((*by_outputs, *self._typed)))
        comparisons, decided = self._comparisons()
        return BoundQuery(
            number=self._number,
            text=query.text,
            schema=schema,
            outputs=tuple(outputs),
            typed=typed,
            conditional=tuple(self._typed),
            previous=tuple(self._previous),
            condition=condition,
            calls=tuple(self._calls.values()),
            topic=topic,
            comparisons=comparisons,
            decided=decided,
            evaluated=by_outputs if decided else typed,
            functions=(*(own.name for own in query.functions), *(installed.name for installed in query.installed)),
        )

    def _comparisons(self) -> tuple[tuple[Comparison, ...], bool]:
        """Return the comparisons of no decimals that the condition begins with, and whether they are all of it."""
        if self._query.condition is None:
            return (), False
        from cdc_core.queries.comparisons import comparisons_of  # loads the parser

        found, whole = comparisons_of(self._query, self._schema)
        kinds = {column.name: column.type.kind for column in self._schema.columns}
        return tuple(each for each in found if kinds.get(each.column) is not Kind.DECIMAL), whole

    def _topic(self) -> Output | None:
        items = [item for item in self._query.items if item.is_topic]
        if len(items) > 1:
            reason = f"two expressions are named {TOPIC_COLUMN}; rename one of them"
            raise refusal(self._query.text, items[1].start, reason)
        return next((self._computed(item.fragment, item.name) for item in items if item.fragment is not None), None)

    def _outputs(self, item: Item) -> Iterator[Output]:
        if item.fragment is None:
            self._require_table(item.qualifier, item.start)
            yield from (Output(name=name, column=name, at=item.start) for name in self._names)
        elif item.column is not None and (item.column.quoted or item.column.name != MVCC_COLUMN):
            yield Output(name=item.name, column=self._column(item.column, whole=True), at=item.start)
        elif item.fragment.text.strip("( \n\t)").lower() in PREVIOUS:
            sql = f"{self._row}.`previous_row`"
            yield Output(name=item.name, sql=sql, text=item.fragment.text, at=item.fragment.start, row=True)
        else:
            yield self._computed(item.fragment, item.name)

    def _computed(self, fragment: Fragment, name: str) -> Output:
        self._used = {}
        sql, text = fragment.rendered(self._replacement), " ".join(fragment.text.split())
        return Output(name=name, sql=sql, text=text, at=fragment.start, calls=tuple(self._used))

    def _replacement(self, reference: Reference) -> str:
        if reference.kind == "comment":
            return " "
        if reference.kind == "text":
            return _literal(reference.name)
        if reference.kind == "function":
            return EVENT_FUNCTIONS[reference.name]
        if reference.kind == "previous row":
            return self._previous_row()
        if reference.kind == "variable":
            return self._query.text[reference.start : reference.end]
        if reference.kind == "call":
            return self._called(reference, self._replacement, outer=reference)
        if reference.kind == "column" and not reference.quoted and reference.name == MVCC_COLUMN:
            return _MVCC
        name = self._column(reference)
        if reference.kind == "previous column":
            return self._value("previous", self._previous, name)
        return self._value("typed", self._typed, name)

    def _called(self, call: Reference, replacement: Callable[[Reference], str], *, outer: Reference) -> str:
        """Return the SQL of a call, with its arguments made by *replacement*. *outer* is the call in the query."""
        function = self._query.function(call.name)
        arguments = tuple(f"({argument.rendered(replacement)})" for argument in call.arguments)
        if isinstance(function, FunctionRegistration):
            return self._in_python(function, arguments, in_lambda=call.in_lambda, outer=outer)
        outer = replace(outer, in_lambda=outer.in_lambda or call.in_lambda)
        values = dict(zip(function.parameters, arguments, strict=True))

        def in_body(reference: Reference) -> str:
            if reference.kind == "parameter":
                return values[reference.name]
            if reference.kind == "variable":  # an argument may have a variable of the same name
                return f"in_{len(function.name)}_{function.name}_{reference.name}"
            if reference.kind == "call":
                return self._called(reference, in_body, outer=outer)
            return self._replacement(reference)

        sql = f"({function.body.rendered(in_body)})"
        if len(sql) > _MAX_SQL:
            reason = f"{call.name} is longer than {_MAX_SQL:,} characters when it is expanded; simplify the functions"
            raise refusal(self._query.text, outer.start, reason)
        return sql

    def _in_python(
        self, function: FunctionRegistration, arguments: tuple[str, ...], *, in_lambda: bool, outer: Reference
    ) -> str:
        if in_lambda or outer.in_lambda:
            reason = (
                f"{function.name} is a Python function, which sees rows and not the members of an array or a map: it"
                " cannot be called in a lambda"
            )
            raise refusal(self._query.text, outer.start, reason)
        call = self._calls.get((function.name, arguments))
        if call is None:
            column = f"f{self._number}_{len(self._calls)}"
            text = " ".join(self._query.text[outer.start : outer.end].split())
            call = PythonCall(column=column, function=function, arguments=arguments, text=text, at=outer.start)
            self._calls[(function.name, arguments)] = call
        self._used[call.column] = None
        value, error = f"`{call.column}`.`value`", f"`{call.column}`.`error`"
        return f"(CASE WHEN {error} IS NULL THEN {value} ELSE raise_error({error}) END)"

    def _value(self, image: str, used: dict[str, None], name: str) -> str:
        used[name] = None
        path = f"{self._row}.`{image}`.{_quoted(name)}"
        type_ = self._schema.column(name).type
        return f"CAST({path} AS {_decimal(type_)})" if type_.kind is Kind.DECIMAL else path

    def _previous_row(self) -> str:
        values = (f"{_literal(name)}, {self._value('previous', self._previous, name)}" for name in self._names)
        return f"(CASE WHEN {self._row}.`previous` IS NOT NULL THEN named_struct({', '.join(values)}) END)"

    def _column(self, reference: Reference, *, whole: bool = False) -> str:
        """Return the name of the table's column that *reference* means; *whole*: it is a whole item."""
        if reference.kind == "column":
            self._require_table(reference.qualifier, reference.start)
        name = reference.name
        if name in self._names:
            return name
        if not reference.quoted:
            same = [known for known in self._names if known.lower() == name.lower()]
            if len(same) == 1:
                return same[0]
        text, hint = self._query.text, did_you_mean(name, self._names)
        if name == MVCC_COLUMN and reference.kind == "previous column" and not reference.quoted:
            hint = f": sources do not say when the previous row was written; {name} alone is the time of the change"
            raise refusal(text, reference.start, f"cdc_prev has no {name}{hint}")
        if name in EVENT_FUNCTIONS and not reference.quoted:
            hint = f"; write {name}()"
        elif not whole and reference.quoted and text[reference.end - 1 : reference.end] == '"':
            hint = f"; if it is a string, write {_literal(name)}"
        raise refusal(text, reference.start, f"table {self._schema.name} has no column '{name}'{hint}")

    def _require_table(self, qualifier: tuple[str, ...], at: int) -> None:
        if not qualifier or qualifier in self._query.names:
            return
        name, known = ".".join(qualifier), ".".join(self._query.names[0])
        if name in self._names and self._schema.column(name).type.kind in (Kind.JSON, Kind.COMPOSITE):
            reason = f"column {name} is JSON text in expressions; write get_json_object({name}, '$.member')"
            raise refusal(self._query.text, at, reason)
        raise refusal(self._query.text, at, f"'{name}' is not the table of the query; write {known}")


def _decimal(type_: ColumnType) -> str:
    """Return the type that numbers of a column have in expressions: its own unless Spark has none like it."""
    digits = type_.decimal_digits
    return f"DECIMAL({digits[0]}, {digits[1]})" if digits is not None and digits[0] <= _MAX_DIGITS else _ANY_DECIMAL


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
