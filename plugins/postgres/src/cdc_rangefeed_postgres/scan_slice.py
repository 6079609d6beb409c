"""Slices of the initial scan: blocks of tables, read under the snapshot of a round."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from cdc_core import (
    Op,
    Restriction,
    RetryableRangefeedError,
    RowBatch,
    Span,
    SpanMark,
    TableSchema,
    TerminalRangefeedError,
    Timestamp,
)
from cdc_rangefeed_postgres.blocks import Piece
from cdc_rangefeed_postgres.client_errors import ClientError, sqlstate, text_of
from cdc_rangefeed_postgres.connection import Server, stream
from cdc_rangefeed_postgres.key_identity import key_operators, same_key
from cdc_rangefeed_postgres.names import quoted
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.partitions import removed_too_early
from cdc_rangefeed_postgres.restricted_scan import conditions, read_columns, whole_rows
from cdc_rangefeed_postgres.scan_values import select_list, to_struct
from cdc_rangefeed_postgres.types import TableVersion

_MISSING_SNAPSHOT = ("42704", "22023")
_GONE = ("42P01", "42703")
_NO_OPERATOR = "42883"
_OF_VALUES = "22"
_WRONG = (_OF_VALUES, "42")
"""Classes of errors that a predicate causes, and that a retry does not cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSlice:
    """One task's share of a step of the initial scan."""

    snapshot: str
    at: Timestamp
    pieces: tuple[Piece, ...]
    versions: Mapping[str, TableVersion]
    """By table."""
    commit_times: bool = False
    """Whether to read when each row was written; the server must have track_commit_timestamp on."""
    endpoint: str = field(default="", repr=False)
    """Where the snapshot is, see `PostgresToken.endpoint`."""

    @property
    def all_versions(self) -> list[TableVersion]:
        return list(self.versions.values())


def read_scan(
    server: Server,
    connection: Any,
    slice_: ScanSlice,
    options: PostgresOptions,
    *,
    diff: bool,
    mvcc: bool,
    restricted: Callable[[TableSchema], Restriction],
) -> Generator[RowBatch | SpanMark]:
    """Yield the rows of a slice, and then a mark for each of its tables. *connection* is an ADBC connection.

    *restricted* says what of the rows is used.

    The caller closes the connection after an error. Raises: RetryableRangefeedError when the snapshot is gone or a
    table was rewritten: the planner then begins a new round.
    """
    cursor = connection.cursor()
    try:
        with server.translated("scanning tables"):
            cursor.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                cursor.execute(f"SET TRANSACTION SNAPSHOT '{slice_.snapshot}'")
            except ClientError as error:
                if sqlstate(error) in _MISSING_SNAPSHOT:
                    raise RetryableRangefeedError(
                        "scan: the snapshot of this round is gone; the next round takes a new one",
                        retry_after_s=0.0,
                        outage=False,
                    ) from None
                raise
            cursor.execute(f"SET LOCAL lock_timeout = '{int(options.lock_timeout * 1000)}ms'")
            for piece in slice_.pieces:
                restriction = restricted(slice_.versions[piece.table].schema)
                yield from _read_piece(cursor, piece, slice_, options, restriction, diff=diff, mvcc=mvcc)
            cursor.execute("ROLLBACK")
    finally:
        with suppress(*ClientError):
            cursor.close()
    for table in dict.fromkeys(piece.table for piece in slice_.pieces):
        span = Span(slice_.versions[table].schema.name.full)
        yield SpanMark(span=span, timestamp=slice_.at, resolved=False)


def _read_piece(
    cursor: Any,
    piece: Piece,
    slice_: ScanSlice,
    options: PostgresOptions,
    restriction: Restriction,
    *,
    diff: bool,
    mvcc: bool,
) -> Iterator[RowBatch]:
    version = slice_.versions[piece.table]
    try:
        cursor.execute(f"LOCK TABLE ONLY {piece.leaf} IN ACCESS SHARE MODE")
        # With the lock held the file cannot change, and the function shows the present file in spite of the snapshot.
        # It is looked up by name: the locked table may be another one, which has taken the name.
        cursor.execute(f"SELECT pg_relation_filenode({sql.Literal(piece.leaf).as_string(None)}::regclass)::bigint")
        if (filenode := cursor.fetchone()[0]) != piece.filenode:
            raise RetryableRangefeedError(
                f"table {piece.table} was rewritten during its scan: its file was {piece.filenode}, and is now"
                f" {filenode}; its scan starts again",
                retry_after_s=0.0,
                outage=False,
            )
        blocks = f"l.ctid >= '({piece.first},0)'::tid AND l.ctid < '({piece.end},0)'::tid"
        if piece.where is not None:
            _require_predicate(cursor, piece)
            blocks += f" AND (\n{piece.where}\n)"
        if piece.root is not None:
            yield from _deletes(cursor, piece, version, blocks, slice_.at, options, diff=diff, mvcc=mvcc)
            return
        own_time = mvcc and slice_.commit_times
        read = read_columns(version, restriction)
        columns = select_list(version, read) + (", pg_xact_commit_timestamp(xmin)" if own_time else "")
        where = " AND ".join([blocks, *conditions(version, restriction)])
        query = f"SELECT {columns} FROM ONLY {piece.leaf} AS l WHERE {where}"
        for batch in stream(cursor, query, batch_bytes=options.fetch_size):
            if batch.num_rows:
                after = whole_rows(to_struct(batch, version, read), version)
                written = batch.column(len(read)) if own_time else None
                yield _rows(after, version.schema, slice_.at, mvcc=mvcc, written=written)
    except ClientError as error:
        if piece.where is not None and (sqlstate(error) or "").startswith(_OF_VALUES):
            raise _wrong(piece, error) from None
        if sqlstate(error) in (*_GONE, _NO_OPERATOR) and piece.root is not None:
            raise TerminalRangefeedError(removed_too_early(piece.table, piece.leaf)) from None
        if sqlstate(error) in _GONE:
            raise RetryableRangefeedError(
                f"table {piece.table} or a column of it was dropped during its scan", outage=False
            ) from None
        raise


def _require_predicate(cursor: Any, piece: Piece) -> None:
    """Return when the table still has what the predicate refers to. Raises: TerminalRangefeedError."""
    try:
        cursor.execute(f"SELECT 1 FROM ONLY {piece.leaf} AS l WHERE (\n{piece.where}\n) LIMIT 0")
        cursor.fetchall()
    except ClientError as error:
        if (sqlstate(error) or "").startswith(_WRONG):
            raise _wrong(piece, error) from None
        raise


def _wrong(piece: Piece, error: BaseException) -> TerminalRangefeedError:
    state = sqlstate(error)
    of_values = state.startswith(_OF_VALUES)  # the server shows the value then, which a mask may have to hide
    why = f"which fails for values of rows (SQLSTATE {state})" if of_values else f"which fails: {text_of(error)}"
    return TerminalRangefeedError(
        f"table {piece.table}: its rescan has the predicate {piece.where!r}, {why}. To continue, replace it with a"
        " rescan of the whole table: `cdc rescan` without --where"
    )


def _deletes(
    cursor: Any,
    piece: Piece,
    version: TableVersion,
    blocks: str,
    at: Timestamp,
    options: PostgresOptions,
    *,
    diff: bool,
    mvcc: bool,
) -> Iterator[RowBatch]:
    """Yield a delete for each row of a detached partition whose key the table does not have in another partition.

    `before` has null for a column that the table got, renamed or gave another type since.
    """
    schema = version.schema
    key = read = schema.primary_key
    if diff:
        leaf = sql.Literal(piece.leaf).as_string(None)
        cursor.execute(
            "SELECT attname::text, atttypid::bigint FROM pg_catalog.pg_attribute"
            f" WHERE attrelid = {leaf}::regclass AND attnum > 0 AND NOT attisdropped"
        )
        types = dict(cursor.fetchall())
        read += tuple(c.name for c in version.columns if c.name not in key and types.get(c.name) == c.oid)
    operators = key_operators(cursor, str(piece.root))
    same = " AND ".join(same_key(name, f"t.{quoted(name)}", f"l.{quoted(name)}", operators) for name in key)
    query = (
        f"SELECT {select_list(version, read)} FROM ONLY {piece.leaf} AS l "
        f"WHERE {blocks} AND NOT EXISTS (SELECT FROM {piece.root} AS t WHERE {same})"
    )
    for batch in stream(cursor, query, batch_bytes=options.fetch_size):
        count = batch.num_rows
        if count:
            row = to_struct(batch, version, read)
            yield RowBatch.of(
                schema,
                op=pa.repeat(pa.scalar(int(Op.DELETE), pa.uint8()), count),
                updated=_repeated(at, count),
                mvcc=_repeated(at, count) if mvcc else None,
                key=RowBatch.struct(schema.key_type, [pc.struct_field(row, name) for name in key]),
                after=pa.nulls(count, schema.after_type),
                before=whole_rows(row, version) if diff else None,
            )


def _rows(
    after: pa.StructArray, schema: TableSchema, at: Timestamp, *, mvcc: bool, written: pa.Array | None
) -> RowBatch:
    """Return scanned rows. *written* is when each was, where the server knows it."""
    count = len(after)
    updated = own = _repeated(at, count)
    if written is not None:
        known = pc.multiply(written.cast(pa.timestamp("us", "UTC")).view(pa.int64()), 1000)
        at_most = pc.min_element_wise(pc.fill_null(known, at.wall), pa.scalar(at.wall, pa.int64()))
        own = RowBatch.timestamps(at_most, pa.repeat(pa.scalar(0, pa.int32()), count))
    return RowBatch.of(
        schema,
        op=pa.repeat(pa.scalar(int(Op.SCAN), pa.uint8()), count),
        updated=updated,
        mvcc=own if mvcc else None,
        key=RowBatch.struct(schema.key_type, [after.field(name) for name in schema.primary_key]),
        after=after,
    )


def _repeated(at: Timestamp, count: int) -> pa.StructArray:
    return RowBatch.timestamps(
        pa.repeat(pa.scalar(at.wall, pa.int64()), count), pa.repeat(pa.scalar(at.logical, pa.int32()), count)
    )
