"""Tables of one source under the names and versions that they have in the changefeed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cdc_core.errors import ConfigError
from cdc_core.rangefeed_values import Rescan
from cdc_core.schema import Column, TableName, TableSchema
from cdc_core.shards.shard import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the tables of the source at `index` of `count` are called. `databases`: see `ShardState`. Picklable."""

    index: int
    count: int
    databases: Mapping[str, str]

    def schema(self, schema: TableSchema) -> TableSchema:
        """Return *schema* as the changefeed has it.

        Sources count the versions of a table on their own: one version of two sources may be two shapes. So each source
        has numbers of its own, which grow as its versions do.
        """
        version = (schema.version - 1) * self.count + self.index + 1
        return replace(schema, name=self._name(schema.name), version=version)

    def table(self, full: str) -> str:
        """Return the full name that the changefeed has for the table *full* of the source."""
        return _replaced(full, self.databases)

    def rescan(self, rescan: Rescan) -> Rescan:
        """Return *rescan* of the changefeed as the source needs it."""
        if rescan.table is None:
            return rescan
        return replace(rescan, table=_replaced(rescan.table, {new: old for old, new in self.databases.items()}))

    def _name(self, name: TableName) -> TableName:
        return replace(name, database=self.databases.get(name.database, name.database))


def common_databases(
    first: Sequence[TableSchema], mine: Sequence[TableSchema], known: Mapping[str, str]
) -> dict[str, str]:
    """Return what the databases of one source are called in the changefeed: as those of the *first* source.

    *known* is what was found before, and stays. Raises: ConfigError when tables of one database belong to several.
    """
    wanted = {schema.name.qualified: schema.name.database for schema in first}
    found = dict(known)
    for schema in mine:
        name = schema.name
        other = wanted.get(name.qualified)
        if other is None:
            continue
        if found.setdefault(name.database, other) != other:
            raise ConfigError(
                f"table {name} is in database {name.database}, but the first source has the tables of that database "
                f"partly in {found[name.database]} and partly in {other}; distribute the tables in the same way in"
                " all sources"
            )
    return found


def differences(shards: Sequence[Shard], schemas: Sequence[Sequence[TableSchema]]) -> list[str]:
    """Return in what the tables of the sources differ from those of the first, as texts."""
    first = {schema.name.qualified: schema for schema in schemas[0]}
    here = shards[0].place
    found = []
    for shard, others in zip(shards[1:], schemas[1:], strict=True):
        theirs = {schema.name.qualified: schema for schema in others}
        found += [f"source {shard.place} has no table {name}, but {here} has" for name in first if name not in theirs]
        found += [f"source {here} has no table {name}, but {shard.place} has" for name in theirs if name not in first]
        for name in first.keys() & theirs.keys():
            found += [
                f"table {name} has {mine} at source {here}, but {other} at {shard.place}"
                for mine, other in _different(first[name], theirs[name])
            ]
    return found


def _different(schema: TableSchema, other: TableSchema) -> list[tuple[str, str]]:
    columns = {column.name: column for column in schema.columns}
    others = {column.name: column for column in other.columns}
    found = [
        (_column(name, columns.get(name)), _column(name, others.get(name)))
        for name in dict.fromkeys((*columns, *others))
        if name not in columns or name not in others or columns[name].type != others[name].type
    ]
    if schema.primary_key != other.primary_key:
        found.append((f"the key {', '.join(schema.primary_key)}", f"the key {', '.join(other.primary_key)}"))
    return found


def _column(name: str, column: Column | None) -> str:
    if column is None:
        return f"no column {name}"
    labels = f" ({', '.join(column.type.labels)})" if column.type.labels else ""
    return f"column {name} of type {column.type.source}{labels}"


def _replaced(full: str, databases: Mapping[str, str]) -> str:
    """Return the full name of a table with another database, if *databases* has one for it."""
    name = TableName.parse(full)
    return replace(name, database=databases.get(name.database, name.database)).full
