"""Slices of the log: peeked from the slot as Arrow, decoded, and marked."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from psycopg import sql

from cdc_core import Mark, RowBatch, Span, TerminalRangefeedError, Timestamp
from cdc_rangefeed_postgres.connection import Connection, Server, stream
from cdc_rangefeed_postgres.failures import ClientError, sqlstate
from cdc_rangefeed_postgres.names import quoted, quoted_table
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.pgoutput import LogDecoder, Lookup
from cdc_rangefeed_postgres.position import lsn_text
from cdc_rangefeed_postgres.relations import Relation, relation_columns
from cdc_rangefeed_postgres.scanvalues import select_list, sql_texts, to_struct
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.types import TableVersion

__all__ = ["LogSlice", "find_relations", "read_log", "table_lookup"]

log = logging.getLogger(__name__)

_IN_USE = "55006"
_NOT_READY = ("55000", "42704", "58P01")
_NO_COLUMN = ("42703", "42P01")
_IN_USE_LIMIT_S = 10.0
_LOOKUP_KEYS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """The transactions of a slot with `start <= final_lsn < end`."""

    slot: Slot
    start: int
    end: int
    after: Timestamp
    until: Timestamp | None
    """What no row may reach, see LogDecoder."""
    mark: Timestamp | None
    """How far time got with this slice; None when only the rows can tell."""
    resolved: bool
    binary: bool
    versions: Mapping[int, tuple[TableVersion, ...]]
    tables: tuple[str, ...]
    """Full names of all watched tables."""


def _peek(slot: str, end: int, *, binary: bool) -> str:
    """Return the FROM item that decodes the log of *slot* up to *end*.

    The server stops after the first record that ends at or after *end*, so that every transaction with
    `final_lsn < end` is there, and perhaps one more, which the decoder leaves out.
    """
    return (
        f"pg_logical_slot_peek_binary_changes('{slot}', '{lsn_text(end)}', NULL, 'proto_version', '1', "
        f"'publication_names', '{quoted(slot)}', 'binary', '{'true' if binary else 'false'}')"
    )


def read_log(
    server: Server,
    connection: Any,
    slice_: LogSlice,
    options: PostgresOptions,
    *,
    diff: bool,
    mvcc: bool,
    lookup: Lookup,
) -> Iterator[RowBatch | Mark]:
    """Yield the rows of a slice, and then a mark for each watched table. *connection* is ADBC's, in autocommit."""
    decoder = LogDecoder(
        slice_.versions,
        start_lsn=slice_.start,
        end_lsn=slice_.end,
        after=slice_.after,
        until=slice_.until,
        diff=diff,
        mvcc=mvcc,
        lookup=lookup,
        target_bytes=options.fetch_size,
    )
    if slice_.end > slice_.start:
        query = f"SELECT data FROM {_peek(slice_.slot.name, slice_.end, binary=slice_.binary)}"
        with server.translated("reading the log"):
            for batch in _batches(server, connection, query, slice_, options):
                yield from decoder.decode(batch.column(0))
        if decoder.counters.incomplete:
            log.warning("lost_toast_rows=%d in this slice", decoder.counters.incomplete)
    timestamp = decoder.latest if slice_.mark is None else slice_.mark
    for table in slice_.tables:
        yield Mark(span=Span(table), timestamp=timestamp, resolved=slice_.resolved)


def _batches(
    server: Server, connection: Any, query: str, slice_: LogSlice, options: PostgresOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the result of *query*; wait a little for a slot that the last reader has not let go of yet."""
    deadline = time.monotonic() + _IN_USE_LIMIT_S
    while True:
        cursor = connection.cursor()
        begun = False
        try:
            for batch in stream(cursor, query, batch_bytes=options.fetch_size):
                begun = True
                yield batch
            return
        except ClientError as error:
            state = sqlstate(error)
            if state == _IN_USE and not begun and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            if state in _NOT_READY:
                _explain(server, slice_)
            raise
        finally:
            with suppress(*ClientError):
                cursor.close()


def _explain(server: Server, slice_: LogSlice) -> None:
    """Raise HistoryLostError or TerminalRangefeedError when the slot or the publication is gone."""
    connection = server.connect("explain")
    try:
        slice_.slot.require(connection, needed=slice_.start)
        row = connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [slice_.slot.name]).fetchone()
    finally:
        connection.close()
    if row is None:
        raise TerminalRangefeedError(
            f"publication {slice_.slot.name} was dropped, so the log can no longer be read: start a changefeed under "
            "another name, with an initial scan, to begin anew"
        )


def find_relations(connection: Connection, slot: Slot, *, start: int, end: int) -> list[tuple[Relation, bool]]:
    """Return the Relation messages of the log up to *end*, each with whether it lies at or after *start*.

    The server decodes everything, but sends only these.
    """
    query = f"""
        SELECT data FROM (
            SELECT ord, data, get_byte(data, 0) AS kind, lead(get_byte(data, 0)) OVER (ORDER BY ord) AS next
            FROM {_peek(slot.name, end, binary=False)} WITH ORDINALITY AS m(lsn, xid, data, ord)
            WHERE get_byte(data, 0) IN (66, 82)
        ) AS f WHERE kind = 82 OR next = 82 ORDER BY ord"""
    found = []
    inside, behind = True, False
    for (data,) in connection.execute(query).fetchall():
        if data[0] == ord("B"):
            final_lsn = int.from_bytes(data[1:9], "big")
            inside, behind = final_lsn >= start, final_lsn >= end
        elif not behind:
            found.append((relation_columns(data), inside))
    return found


def table_lookup(server: Server) -> Lookup:
    """Return a function that reads present values by key, for large values that the log does not repeat."""

    def lookup(
        relid: int,  # noqa: ARG001
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
