"""Looks up large values that the log does not repeat, by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from psycopg import sql

from cdc_rangefeed_postgres.client_errors import ClientError, sqlstate
from cdc_rangefeed_postgres.connection import Server
from cdc_rangefeed_postgres.fields import Ints
from cdc_rangefeed_postgres.names import quoted, quoted_table
from cdc_rangefeed_postgres.scan_values import select_list, sql_texts, to_struct
from cdc_rangefeed_postgres.types import TableVersion

__all__ = ["TableLookup"]

_ALTERED = ("42703", "42P01", "42883")
"""No such column, table, or function for the type that a column has now."""
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
        with self._server.translated(f"looking up values of {version.schema.name}"):
            connection = self._connect()
            for offset in range(0, len(keys), _LOOKUP_KEYS):
                query = _query(version, keys.slice(offset, _LOOKUP_KEYS), columns, what)
                with connection.cursor() as cursor:
                    try:
                        cursor.execute(query)
                        table = cursor.fetch_arrow_table()
                    except ClientError as error:
                        if sqlstate(error) not in _ALTERED:
                            raise
                        return []
                found += [(offset, batch) for batch in table.combine_chunks().to_batches() if batch.num_rows]
        return found


def _size(value: str, base_oid: int) -> str:
    """Return an expression in SQL for the bytes of *value*, whose type is *base_oid* under all domains."""
    if base_oid in _JSON:
        return f"octet_length({value}::text)"
    return f"{'octet_length' if base_oid in _TEXTS_AND_BYTES else 'pg_column_size'}({value})"


def _query(version: TableVersion, keys: pa.StructArray, columns: Sequence[str], what: str) -> str:
    schema, types = version.schema, {column.name: column.oid for column in version.columns}
    names = [f'"cdc key {index}"' for index in range(len(schema.primary_key))]
    arrays = [
        _array_literal(sql_texts(keys.field(index), schema.column(name).type))
        + f"::{schema.column(name).type.source}[]"
        for index, name in enumerate(schema.primary_key)
    ]
    same = " AND ".join(f"t.{quoted(name)} = k.{alias}" for name, alias in zip(schema.primary_key, names, strict=True))
    same_types = " AND ".join(f"pg_typeof(t.{quoted(name)})::oid = {types[name]}" for name in columns)
    name = version.renamed or schema.name
    return (
        f"SELECT {what}, k.{_ORDINAL}::bigint AS {_ORDINAL} "
        f"FROM unnest({', '.join(arrays)}) WITH ORDINALITY AS k({', '.join(names)}, {_ORDINAL}) "
        f"JOIN {quoted_table(name.schema, name.table)} AS t ON {same} WHERE {same_types}"
    )


def _array_literal(texts: Sequence[str | None]) -> str:
    return "ARRAY[" + ", ".join(sql.Literal(text).as_string(None) for text in texts) + "]::text[]"
