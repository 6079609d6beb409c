"""Looks up large values that the log does not repeat, by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from psycopg import sql

from cdc_rangefeed_postgres.client_errors import ClientError, sqlstate
from cdc_rangefeed_postgres.connection import Server
from cdc_rangefeed_postgres.names import quoted, quoted_table
from cdc_rangefeed_postgres.scan_values import select_list, sql_texts, to_struct
from cdc_rangefeed_postgres.toast import Lookup
from cdc_rangefeed_postgres.types import TableVersion

__all__ = ["table_lookup"]

_NO_COLUMN = ("42703", "42P01")
_LOOKUP_KEYS = 1000


def table_lookup(server: Server) -> Lookup:
    """Return a function that reads present values by key. Each call opens a connection."""

    def lookup(
        version: TableVersion,
        keys: pa.StructArray,
        columns: Sequence[str],
    ) -> tuple[npt.NDArray[np.bool_], pa.StructArray]:
        with server.translated(f"looking up values of {version.schema.name}"):
            connection = server.connect_arrow("lookup")
            try:
                parts = [
                    _look_up(connection, version, keys.slice(offset, _LOOKUP_KEYS), tuple(columns))
                    for offset in range(0, len(keys), _LOOKUP_KEYS)
                ]
            finally:
                connection.close()
        return np.concatenate([found for found, _ in parts]), pa.concat_arrays([values for _, values in parts])

    return lookup


def _look_up(
    connection: Any, version: TableVersion, keys: pa.StructArray, columns: tuple[str, ...]
) -> tuple[npt.NDArray[np.bool_], pa.StructArray]:
    schema = version.schema
    names = [f'"cdc key {index}"' for index in range(len(schema.primary_key))]
    arrays = [
        _array_literal(sql_texts(keys.field(index), schema.column(name).type))
        + f"::{schema.column(name).type.source}[]"
        for index, name in enumerate(schema.primary_key)
    ]
    same = " AND ".join(f"t.{quoted(name)} = k.{alias}" for name, alias in zip(schema.primary_key, names, strict=True))
    table = quoted_table(schema.name.schema, schema.name.table)
    query = (
        f'SELECT {select_list(version, columns)}, k."cdc ord"::bigint AS "cdc ord" '
        f'FROM unnest({", ".join(arrays)}) WITH ORDINALITY AS k({", ".join(names)}, "cdc ord") '
        f"JOIN {table} AS t ON {same}"
    )
    cursor = connection.cursor()
    try:
        cursor.execute(query)
        table_ = cursor.fetch_arrow_table().combine_chunks()
    except ClientError as error:
        if sqlstate(error) not in _NO_COLUMN:
            raise
        table_ = None
    finally:
        cursor.close()
    fields = [pa.field(name, schema.column(name).type.arrow) for name in columns]
    exists = np.zeros(len(keys), np.bool_)
    if table_ is None or table_.num_rows == 0:
        return exists, pa.nulls(len(keys), pa.struct(fields))
    (batch,) = table_.to_batches()
    order = batch.column(len(columns)).to_numpy() - 1
    exists[order] = True
    place = np.zeros(len(keys), np.int64)
    place[order] = np.arange(len(order))
    values = to_struct(batch, version, columns)
    return exists, values.take(pa.array(place))


def _array_literal(texts: Sequence[str | None]) -> str:
    return "ARRAY[" + ", ".join(sql.Literal(text).as_string(None) for text in texts) + "]::text[]"
