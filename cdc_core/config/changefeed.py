"""What a user writes: a changefeed, before any plugin is involved."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc_core.errors import ConfigError
from cdc_core.masking import has_unencoded_password, masked_uri
from cdc_core.queries.parser import parse_query
from cdc_core.queries.table_queries import TableQueries
from cdc_core.schema import TableName
from cdc_core.shards.shard import MAX_SHARDS
from cdc_core.uris import place_of, same_database

_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


_TYPES: dict[str, type] = {
    **dict.fromkeys(("query", "sink", "format"), str),
    **dict.fromkeys(("functions", "table", "options", "spark"), Mapping),
}


def require_name(name: str) -> None:
    """Return if *name* can be the name of a changefeed. Raises: ConfigError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"'{name}' is not a valid changefeed name; use 1 to 40 of the characters A-Z a-z 0-9 _ -")


def require_types(place: str, values: Mapping[str, Any]) -> None:
    """Return if each of *values* has the type of a changefeed's field with its name.

    Raises: ConfigError, which begins with *place*.
    """
    for key, kind in _TYPES.items():
        value = values.get(key, "" if kind is str else {})
        names = value if isinstance(value, Mapping) else ()
        if not isinstance(value, kind) or not all(isinstance(name, str) for name in names):
            wanted = "a string" if kind is str else "a table of names and values"
            raise ConfigError(f"{place}: '{key}' must be {wanted}")
    sources = values.get("source", "")
    if not isinstance(sources, str) and not (sources and _are_strings(sources)):
        raise ConfigError(f"{place}: 'source' must be a string, or a list of strings")
    if not _are_strings(values.get("tables", ())):
        raise ConfigError(f"{place}: 'tables' must be a list of table names, such as ['public.orders']")


def _are_strings(values: object) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Changefeed:
    """One named pipeline as the user wrote it. Picklable; `repr` shows no secret.

    `source` is a URI, or several URIs of databases that have the same tables. With a `query`, `tables` contains the one
    table that it names. The query may call `functions`, whose texts are given by name. `table` has a section for each
    table from which only some columns or rows are delivered (see `cdc_core.queries.selection`); other tables are
    delivered whole. A changefeed without a `sink` can only be watched. `options` contains the options of the changefeed
    itself, the encoder, the sink and the source together; which option belongs to which is known when the plugins are
    loaded (`cdc_core.config.resolve`). `spark` holds the Spark master and configuration. `written` is set if the
    changefeed was read from a text: it has the same values by name, with references such as `${PASSWORD}` unresolved.
    """

    name: str
    source: str | tuple[str, ...]
    tables: tuple[str, ...] = ()
    sink: str = ""
    format: str = "json"
    query: str | None = None
    functions: Mapping[str, str] = field(default_factory=dict)
    table: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        require_name(self.name)
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        require_types(f"changefeed '{self.name}'", values | ({"query": ""} if self.query is None else {}))
        object.__setattr__(self, "tables", self._watched())
        if not self.tables or not all(self.tables):
            raise ConfigError(
                f"changefeed '{self.name}' watches no table; list tables, such as tables = ['public.orders'], or set "
                "a query"
            )
        twice = [table for table, times in Counter(self.tables).items() if times > 1]
        if twice:
            raise ConfigError(f"changefeed '{self.name}' lists table '{min(twice)}' twice")
        self._check_sections()
        if not isinstance(self.source, str):
            object.__setattr__(self, "source", self.source[0] if len(self.source) == 1 else tuple(self.source))
        self._check_sources()
        dead_letter = self.options.get("dead_letter")
        for key, uri, example in (
            *(("source", uri, "postgresql://user@host:5432/database") for uri in self.sources),
            ("sink", self.sink, "file:///data/out"),
            ("dead_letter", dead_letter, "file:///data/dead"),
        ):
            if not isinstance(uri, str) or (key == "sink" and not uri):
                continue
            if "://" not in uri:
                raise ConfigError(f"changefeed '{self.name}': {key} is not a URI; write it as {example}")
            if has_unencoded_password(uri):
                raise ConfigError(
                    f"changefeed '{self.name}': the password in {key} must be percent-encoded: / is %2F, ? is %3F, "
                    "# is %23, @ is %40, % is %25"
                )

    def _watched(self) -> tuple[str, ...]:
        """Return the tables: that of the query if there is one, as nothing else is read then."""
        tables = tuple(self.tables)
        if self.query is None:
            if self.functions:
                raise ConfigError(
                    f"changefeed '{self.name}' has functions but no query that could call them; set a query"
                )
            return tables
        if not all(isinstance(text, str) for text in self.functions.values()):
            raise ConfigError(f"changefeed '{self.name}': 'functions' must be a list of strings")
        try:
            table = parse_query(self.query, tuple(self.functions.items())).table
        except ConfigError as error:
            raise type(error)(f"changefeed '{self.name}': {error}") from None
        if tables not in ((), (table,)):
            raise ConfigError(
                f"changefeed '{self.name}' lists the tables {', '.join(tables)}, but its query reads {table}; remove "
                "'tables'"
            )
        return (table,)

    def _check_sections(self) -> None:
        if self.table and self.query is not None:
            raise ConfigError(
                f"changefeed '{self.name}' has both a query and a section of table {next(iter(self.table))}; put the"
                " columns and the condition into the query, or list the table under 'tables' instead"
            )
        try:
            TableQueries.of(self.query, self.table)
        except ConfigError as error:
            raise type(error)(f"changefeed '{self.name}', {error}") from None

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,) if isinstance(self.source, str) else self.source

    def _check_sources(self) -> None:
        if len(self.sources) > MAX_SHARDS:
            raise ConfigError(
                f"changefeed '{self.name}' has {len(self.sources):,} sources; the maximum is {MAX_SHARDS:,}; divide"
                " them among several changefeeds"
            )
        for index, uri in enumerate(self.sources):
            for other in self.sources[:index]:
                if same_database(uri, other):
                    raise ConfigError(
                        f"changefeed '{self.name}' lists source {place_of(uri)} twice; remove one of them"
                    )

    def __repr__(self) -> str:
        return (
            f"Changefeed(name={self.name!r}, source={', '.join(map(masked_uri, self.sources))!r},"
            f" tables={self.tables!r}, "
            f"sink={masked_uri(self.sink, secret_path=True)!r}, format={self.format!r}, options={sorted(self.options)})"
        )


def dead_letter_table(changefeed: str) -> TableName:
    """Return the table that dead letters of *changefeed* are rows of, for the sink that takes them."""
    return TableName(database="cdc", schema="dead_letters", table=f"{changefeed}_dead_letters")


def dead_letter_changefeed(changefeed: Changefeed, uri: str) -> Changefeed:
    """Return what delivers dead letters of *changefeed* to the sink at *uri*."""
    return Changefeed(name=changefeed.name, source=changefeed.source, tables=changefeed.tables, sink=uri, format="json")
