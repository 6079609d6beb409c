"""Looks up large values that the log does not repeat, by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from psycopg import sql

from cdc_rangefeed_postgres.builtin_types import BUILTIN, with_modifier
from cdc_rangefeed_postgres.client_errors import ClientError, sqlstate
from cdc_rangefeed_postgres.connection import Server
from cdc_rangefeed_postgres.fields import Ints
from cdc_rangefeed_postgres.key_identity import Operators, key_operators, same_key
from cdc_rangefeed_postgres.names import quoted, quoted_table
from cdc_rangefeed_postgres.scan_values import select_list, sql_texts, to_struct
from cdc_rangefeed_postgres.types import PgColumn, TableVersion, TypeCatalog

__all__ = ["TableLookup"]

_ALTERED = ("42703", "42P01", "42883")
"""No such column, table, or function for the type that a column has now."""
_NOT_OF_TYPE = ("22P02", "42501", "42704", "42883")
"""The type of a key column no longer has a value, cannot be used by the role, is gone, or has no such operator."""
_LOOKUP_KEYS = 1000
_ORDINAL = '"cdc ord"'
_TEXTS_AND_BYTES = (17, 25, 1043)
"""bytea, text, varchar"""
_JSON = (114, 3802)
"""json, jsonb"""


class TableLookup:
    """See `Lookup`. Reads from the watched tables, on a connection that *connect* returns."""

    def __init__(self, server: Server, connect: Callable[[], Any]) -> None:
        self._server = server
        self._connect = connect
        self._operators: dict[str, Operators] = {}

    def sizes(self, version: TableVersion, keys: pa.StructArray, columns: Sequence[str]) -> Ints:
        """Return the bytes of the values; for types other than text, bytea and JSON, those of their compressed form."""
        types = {column.name: version.types.base(column.oid)[0].oid for column in version.columns}
        size = " + ".join(f"coalesce({_size(f't.{quoted(name)}', types[name])}, 0)::bigint" for name in columns)
        sizes = np.zeros(len(keys), np.int64)
        for offset, batch in self._select(version, keys, columns, size):
            sizes[offset + batch.column(1).to_numpy() - 1] = batch.column(0).to_numpy()
        return sizes

    def values(
        self, version: TableVersion, keys: pa.StructArray, columns: Sequence[str]
    ) -> tuple[npt.NDArray[np.bool_], pa.StructArray]:
        exists, place = np.zeros(len(keys), np.bool_), np.zeros(len(keys), np.int64)
        fields = [pa.field(name, version.schema.column(name).type.arrow) for name in columns]
        parts, count = [pa.nulls(1, pa.struct(fields))], 1
        for offset, batch in self._select(version, keys, columns, select_list(version, columns)):
            order = offset + batch.column(len(columns)).to_numpy() - 1
            exists[order] = True
            place[order] = count + np.arange(len(order))
            parts.append(to_struct(batch, version, columns))
            count += len(order)
        return exists, pa.concat_arrays(parts).take(pa.array(place))

    def _select(
        self, version: TableVersion, keys: pa.StructArray, columns: Sequence[str], what: str
    ) -> list[tuple[int, pa.RecordBatch]]:
        """Return *what*, a select list, of the rows with *keys*, and the ordinal of each row's key.

        Each batch comes with what to add to its ordinals. There is none when a column was dropped or has another type.
        """
        found: list[tuple[int, pa.RecordBatch]] = []
        with self._server.translated(f"looking up values of {version.schema.name}"), self._connect().cursor() as cursor:
            for offset in range(0, len(keys), _LOOKUP_KEYS):
                try:
                    table = self._fetch(cursor, version, keys.slice(offset, _LOOKUP_KEYS), columns, what)
                except ClientError as error:
                    if sqlstate(error) not in _ALTERED:
                        raise
                    return []
                found += [(offset, batch) for batch in table.combine_chunks().to_batches() if batch.num_rows]
        return found

    def _fetch(
        self, cursor: Any, version: TableVersion, keys: pa.StructArray, columns: Sequence[str], what: str
    ) -> pa.Table:
        name = version.renamed or version.schema.name
        table = quoted_table(name.schema, name.table)
        operators = self._operators.get(table)
        if operators is None:
            operators = self._operators[table] = key_operators(cursor, table)
        try:
            cursor.execute(_query(version, table, keys, columns, what, operators))
            return cursor.fetch_arrow_table()
        except ClientError as error:
            built_in = {column.name for column in version.columns if version.types.base(column.oid)[0].oid in BUILTIN}
            known = {column: operator for column, operator in operators.items() if column in built_in}
            if sqlstate(error) not in _NOT_OF_TYPE or known == operators:
                raise
            self._operators[table] = known
            return self._fetch(cursor, version, keys, columns, what)


def _size(value: str, base_oid: int) -> str:
    """Return an expression in SQL for the bytes of *value*, whose type is *base_oid* under all domains."""
    if base_oid in _JSON:
        return f"octet_length({value}::text)"
    return f"{'octet_length' if base_oid in _TEXTS_AND_BYTES else 'pg_column_size'}({value})"


def _query(
    version: TableVersion, table: str, keys: pa.StructArray, columns: Sequence[str], what: str, operators: Operators
) -> str:
    schema, types = version.schema, {column.name: column for column in version.columns}
    aliases = {name: f'"cdc key {index}"' for index, name in enumerate(schema.primary_key)}
    arrays = [
        _array_literal(sql_texts(keys.field(index), schema.column(name).type))
        + _cast(version.types, types[name], known=name in operators)
        for index, name in enumerate(schema.primary_key)
    ]
    same = " AND ".join(same_key(name, f"t.{quoted(name)}", f"k.{alias}", operators) for name, alias in aliases.items())
    same_types = " AND ".join(f"pg_typeof(t.{quoted(name)})::oid = {types[name].oid}" for name in columns)
    return (
        f"SELECT {what}, k.{_ORDINAL}::bigint AS {_ORDINAL} "
        f"FROM unnest({', '.join(arrays)}) WITH ORDINALITY AS k({', '.join(aliases.values())}, {_ORDINAL}) "
        f"JOIN {table} AS t ON {same} WHERE {same_types}"
    )


def _cast(types: TypeCatalog, column: PgColumn, *, known: bool) -> str:
    """Return the cast of an array of texts to the type of a key *column*; none for a type that is not *known*.

    Texts of such a type have the form that the server writes, so they can be compared as they are.
    """
    base, typmod = types.base(column.oid, column.typmod)
    return f"::{with_modifier(base.oid, base.name, typmod)}[]" if known or base.oid in BUILTIN else ""


def _array_literal(texts: Sequence[str | None]) -> str:
    return "ARRAY[" + ", ".join(sql.Literal(text).as_string(None) for text in texts) + "]::text[]"
