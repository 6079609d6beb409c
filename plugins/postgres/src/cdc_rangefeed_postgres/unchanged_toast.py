"""Unchanged TOAST values. An update that does not change such a value leaves it out of the log.

Rows get the current values of these columns, looked up by key in pieces of bounded size.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from psycopg import sql

from cdc_core import START_OVER, Op, RowBatch, TerminalRangefeedError, unavailable_by_column, unavailable_column
from cdc_rangefeed_postgres.builtin_types import BUILTIN, with_modifier
from cdc_rangefeed_postgres.changes import NONE, Changes
from cdc_rangefeed_postgres.client_errors import ClientError, sqlstate
from cdc_rangefeed_postgres.connection import Server
from cdc_rangefeed_postgres.fields import Ints, Mask
from cdc_rangefeed_postgres.key_identity import Operators, key_operators, same_key
from cdc_rangefeed_postgres.keys import key_codes
from cdc_rangefeed_postgres.names import quoted, quoted_table
from cdc_rangefeed_postgres.scan_values import select_list, sql_texts, to_struct
from cdc_rangefeed_postgres.types import PgColumn, TableVersion, TypeCatalog


class Lookup(Protocol):
    """Reads the current values of *columns* in the rows with these distinct *keys*, of `version.schema.key_type`."""

    def sizes(self, version: TableVersion, keys: pa.StructArray, columns: Sequence[str]) -> Ints:
        """Return about how many bytes the values of each row take; 0 for a row that does not exist."""

    def values(
        self, version: TableVersion, keys: pa.StructArray, columns: Sequence[str]
    ) -> tuple[npt.NDArray[np.bool_], pa.StructArray]:
        """Return whether each row exists, and a struct of the columns in the types of `version.schema`.

        No row exists when the table no longer has one of the columns.
        """


def completed(
    rows: RowBatch,
    version: TableVersion,
    *,
    wanted: Mask,
    columns: Container[str] = (),
    lookup: Lookup,
    target_bytes: int,
) -> Iterator[RowBatch]:
    """Yield *rows*, in order, with the unavailable values of those *wanted*, and of *columns*, looked up.

    They may be newer than the rows. Values of rows that no longer exist remain unavailable. Batches have values of
    about *target_bytes*, or one larger one, and the values of a batch are read after the caller has taken the one
    before.
    """
    masks = {name: mask & (wanted | (name in columns)) for name, mask in unavailable_by_column(rows).items()}
    lacking = np.flatnonzero(np.logical_or.reduce([np.zeros(len(rows), np.bool_), *masks.values()]))
    if not len(lacking):
        yield rows
        return
    keys, inverse = _distinct(rows, lacking)
    ends = np.cumsum(lookup.sizes(version, keys, _any(masks))[inverse])
    first, start = 0, 0
    while first < len(lacking):
        before = ends[first - 1] if first else 0
        after = max(int(np.searchsorted(ends, before + target_bytes, side="right")), first + 1)
        stop = int(lacking[after]) if after < len(lacking) else len(rows)
        piece = {name: mask[start:stop] for name, mask in masks.items()}
        yield _looked_up(rows.slice(start, stop - start), version, lookup, piece)
        first, start = after, stop


def _distinct(rows: RowBatch, places: Ints) -> tuple[pa.StructArray, Ints]:
    """Return the distinct keys of the rows at *places*, and the index of each row's key among them."""
    keys = rows.column("key").take(pa.array(places))
    _, firsts, inverse = np.unique(key_codes(keys.flatten()), return_index=True, return_inverse=True)
    return keys.take(pa.array(firsts)), inverse


def _any(masks: Mapping[str, Mask]) -> list[str]:
    return [name for name, mask in masks.items() if mask.any()]


def _looked_up(rows: RowBatch, version: TableVersion, lookup: Lookup, masks: Mapping[str, Mask]) -> RowBatch:
    """Return *rows* with the values in *masks*, by column, looked up."""
    lacking = np.flatnonzero(np.logical_or.reduce(list(masks.values())))
    keys, inverse = _distinct(rows, lacking)
    found, values = lookup.values(version, keys, columns := _any(masks))
    place, exists = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
    place[lacking], exists[lacking] = inverse, found[inverse]
    after = rows.column("after")
    arrays = after.flatten()
    for name in columns:
        index = rows.schema.after_type.get_field_index(name)
        arrays[index] = _filled(arrays[index], values.field(name), place, masks[name] & exists)
    whole = {name: rows.column(name) for name in rows.batch.schema.names}
    whole["after"] = RowBatch.struct(rows.schema.after_type, arrays, mask=after.is_null())
    left = {name: mask & ~(masks[name] & exists) for name, mask in unavailable_by_column(rows).items()}
    whole["unavailable"] = unavailable_column(left)
    return RowBatch.of(rows.schema, **whole)


def _filled(array: pa.Array, values: pa.Array, place: Ints, wanted: Mask) -> pa.Array:
    """Return *array* with the entry of *values* at *place* in the rows *wanted*."""
    sources = np.where(wanted, len(array) + place, np.arange(len(array)))
    return pa.concat_arrays([array, values]).take(pa.array(sources))


def require_keys(changes: Changes) -> None:
    """Raise TerminalRangefeedError when the log has not the whole key of a row, as servers before 14.2 may write it."""
    schema = changes.version.schema
    for index in changes.new.unchanged:
        name = schema.columns[index].name
        if name in schema.primary_key:
            raise TerminalRangefeedError(
                f"table {schema.name}: the log lacks a large value of the key column {name}. Upgrade the server"
                f" to its newest minor version, or run ALTER TABLE "
                f"{quoted_table(schema.name.schema, schema.name.table)} REPLICA IDENTITY FULL. {START_OVER}"
            )


def fill_from_earlier(changes: Changes) -> None:
    """Fill unchanged values from earlier rows of the same key, if the key was not deleted in between.

    Values of old tuples are filled already.
    """
    codes = key_codes(changes.keys)
    for index in list(changes.new.unchanged):
        _fill(changes, index, codes)


def unavailable_of(changes: Changes, rows: Ints) -> pa.ListArray | None:
    """Return the column `unavailable` of *rows*: the unchanged values that are not filled; None when there are none."""
    if not changes.new.unchanged:
        return None
    schema, after = changes.version.schema, changes.after[rows]
    names = [column.name for column in schema.columns]
    masks = {
        names[index]: (after != NONE) & changes.new.unchanged[index][after] for index in sorted(changes.new.unchanged)
    }
    return unavailable_column(masks)


def _fill(changes: Changes, index: int, codes: Ints) -> None:
    unchanged = changes.new.unchanged[index]
    order = np.argsort(codes, kind="stable")
    after = changes.after[order]
    carries = (after != NONE) & ~unchanged[after]
    fresh = np.append(True, codes[order][1:] != codes[order][:-1]) | (changes.ops[order] == Op.DELETE)
    latest = np.maximum.accumulate(np.where(carries | fresh, np.arange(len(order)), 0))
    wanted = (after != NONE) & unchanged[after] & carries[latest]
    if wanted.any():
        values = changes.new.column(index).take(pa.array(after[latest[wanted]]))
        changes.new.fill(index, values, into=after[wanted])


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
