"""What is selected of each table of a changefeed: by its query, by sections of tables, or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

from cdc_core.errors import ConfigError
from cdc_core.function_registration import FunctionRegistration
from cdc_core.options import did_you_mean
from cdc_core.queries.binding import bind
from cdc_core.queries.bound_query import BoundQuery
from cdc_core.queries.parser import parse_query, restriction_of
from cdc_core.queries.query import Query
from cdc_core.queries.selection import Selection
from cdc_core.restriction import Restriction
from cdc_core.schema import TableName, TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQueries:
    """The query of a changefeed, or the sections of its tables. Picklable.

    The query may call `functions`, (name, text), and `installed` ones, and conditions of sections the latter. With
    `diff`, rows of sections have `before`.
    """

    query: str | None = None
    functions: tuple[tuple[str, str], ...] = ()
    installed: tuple[FunctionRegistration, ...] = ()
    selections: tuple[Selection, ...] = ()
    diff: bool = False

    @classmethod
    def of(
        cls, query: str | None, sections: Mapping[str, Any], *, functions: Mapping[str, str] = MappingProxyType({})
    ) -> Self:
        """Return what a changefeed's file says. Raises: OptionError."""
        selections = tuple(Selection.parse(table, section) for table, section in sections.items())
        return cls(query=query, functions=tuple(functions.items()), selections=selections)

    @property
    def exist(self) -> bool:
        """Whether anything is selected: otherwise whole rows of all tables are delivered."""
        return self.query is not None or bool(self.selections)

    @property
    def compute(self) -> bool:
        """Whether Spark may have to evaluate rows: not all is columns that are passed on. Raises: OptionError."""
        if self.query is None:
            return any(selection.where is not None for selection in self.selections)
        query = parse_query(self.query, self.functions, self.installed)
        passed = all(item.fragment is None or item.column is not None for item in query.items)
        return not passed or query.condition is not None

    @property
    def routes(self) -> bool:
        """Whether the query gives each row its topic."""
        return self.query is not None and parse_query(self.query, self.functions, self.installed).routes

    def selects(self, table: TableName) -> bool:
        """Return whether something is selected of *table*, so that its rows must never be delivered whole."""
        return self.query is not None or any(selection.matches(table) for selection in self.selections)

    def query_of(self, schema: TableSchema) -> Query | None:
        """Return the query of version *schema*; None when whole rows are delivered. Raises: OptionError."""
        if self.query is not None:
            return parse_query(self.query, self.functions, self.installed)
        selection = self._selection_of(schema)
        return None if selection is None else selection.query_of(schema, installed=self.installed)

    def bind(self, schema: TableSchema, *, number: int = 0) -> BoundQuery | None:
        """Return what is selected of version *schema*, bound; None when whole rows are. Raises: OptionError."""
        if self.query is not None:
            return bind(parse_query(self.query, self.functions, self.installed), schema, number=number)
        selection = self._selection_of(schema)
        return (
            None
            if selection is None
            else selection.bind(schema, number=number, diff=self.diff, installed=self.installed)
        )

    def restriction_of(self, schema: TableSchema) -> Restriction:
        """Return what is used of the rows of version *schema*. Masked columns are used."""
        try:
            query, bound = self.query_of(schema), self.bind(schema)
        except ConfigError:
            return Restriction()  # binding says what is wrong
        if query is None or bound is None:
            return Restriction()
        found = restriction_of(query, schema)
        return replace(found, of_changes=()) if bound.deletes_pass else found

    def refers_to(self, *kinds: str, name: str | None = None) -> bool:
        """Return whether a query or a condition of a section refers to this: as `Query.refers_to`."""
        if self.query is not None:
            return parse_query(self.query, self.functions, self.installed).refers_to(*kinds, name=name)
        return any(
            selection.condition_with(self.installed).refers_to(*kinds, name=name) for selection in self.selections
        )

    def require_tables(self, schemas: Sequence[TableSchema]) -> None:
        """Return if each section is that of one of *schemas*. Raises: ConfigError: its table's rows would be whole."""
        for selection in self.selections:
            found = [schema.name.qualified for schema in schemas if selection.matches(schema.name)]
            if not found:
                hint = did_you_mean(selection.table, [schema.name.qualified for schema in schemas])
                raise ConfigError(
                    f"table {selection.table} has a section, but is not watched{hint}; fix the name of the section, or"
                    f" remove it. If the table was dropped, remove it with `cdc alter` and --drop {selection.table}"
                    f" with its schema, or add '!{selection.table}' to 'tables' in the file"
                )
            if len(found) > 1:
                raise ConfigError(
                    f"table {selection.table}: its section could belong to {' and '.join(sorted(found))}; write "
                    "schema.table in its name"
                )

    def _selection_of(self, schema: TableSchema) -> Selection | None:
        found = [selection for selection in self.selections if selection.matches(schema.name)]
        if len(found) > 1:
            raise ConfigError(
                f"table {schema.name} has two sections, {found[0].table} and {found[1].table}; keep one of them"
            )
        return found[0] if found else None
