"""Slices of the initial scan: ranges of blocks, read under the snapshot of a round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdc_core import Mark, Op, RetryableRangefeedError, RowBatch, Span, Timestamp
from cdc_rangefeed_postgres.catalog import Leaf, Table
from cdc_rangefeed_postgres.connection import Connection, Server, stream
from cdc_rangefeed_postgres.failures import ClientError, sqlstate
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.position import Part, Scan
from cdc_rangefeed_postgres.scanvalues import select_list, to_struct
from cdc_rangefeed_postgres.types import TableVersion

__all__ = ["Density", "Piece", "ScanSlice", "first_parts", "pieces_between", "read_scan", "split", "survey", "take"]

BLOCK_BYTES = 8192
_ASSUMED_ROWS_PER_BLOCK = 60.0
_MISSING_SNAPSHOT = ("42704", "22023")
_GONE = ("42P01", "42703")

_SURVEY = """
SELECT c.oid::bigint, pg_relation_filenode(c.oid)::bigint, pg_relation_size(c.oid) / current_setting('block_size')::int,
       CASE WHEN c.reltuples > 0 AND c.relpages > 0 THEN c.reltuples::float8 / c.relpages END,
       pg_table_size(c.oid)::float8 / greatest(pg_relation_size(c.oid), 1)
FROM pg_class c WHERE c.oid = ANY(%s::oid[])
"""


@dataclass(frozen=True, slots=True)
class Density:
    """What a block of a table holds on average: an estimate."""

    rows: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Piece:
    """The blocks from `first` up to, and not with, `end` of one table or partition."""

    table: str
    leaf: str
    """Its name in SQL."""
    oid: int
    filenode: int
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSlice:
    """What one task of the initial scan reads."""

    snapshot: str
    at: Timestamp
    pieces: tuple[Piece, ...]
    versions: Mapping[str, TableVersion]
    """By table."""
    commit_times: bool = False
    """Whether the server knows when each row was written."""


def survey(connection: Connection, oids: Sequence[int]) -> dict[int, tuple[int, int, Density]]:
    """Return file, number of blocks and density of each of *oids* that exists.

    Raises: RetryableRangefeedError when one of them was being rewritten meanwhile.
    """
    oids = list(oids)
    found = {}
    for oid, filenode, blocks, rows, weight in connection.execute(_SURVEY, [oids]).fetchall():
        density = Density(rows=rows or _ASSUMED_ROWS_PER_BLOCK, bytes=BLOCK_BYTES * max(weight, 1.0))
        found[oid] = (filenode, blocks, density)
    again = filenodes(connection, oids)
    if any(again.get(oid) != filenode for oid, (filenode, _, _) in found.items()):
        raise RetryableRangefeedError("a table was rewritten while the initial scan was being planned")
    return found


def filenodes(connection: Connection, oids: Sequence[int]) -> dict[int, int]:
    """Return the present file of each of *oids* that exists."""
    return dict(
        connection.execute(
            "SELECT oid::bigint, pg_relation_filenode(oid)::bigint FROM pg_class WHERE oid = ANY(%s::oid[])",
            [list(oids)],
        ).fetchall()
    )


def first_parts(tables: Sequence[Table], found: Mapping[int, tuple[int, int, Density]]) -> tuple[Part, ...]:
    """Return what the initial scan of *tables* has to read; empty tables are left out."""
    return tuple(
        Part(table=table.name.qualified, oid=leaf.oid, filenode=found[leaf.oid][0], blocks=found[leaf.oid][1])
        for table in tables
        for leaf in table.leaves
        if leaf.oid in found and found[leaf.oid][1] > 0
    )


def take(scan: Scan, densities: Mapping[int, Density], *, rows: int, bytes_: int) -> Scan | None:
    """Return what is left of *scan* after a step of about so many rows or bytes; None when nothing is."""
    rows_left, bytes_left = float(rows), float(bytes_)
    block = scan.block
    for index, part in enumerate(scan.parts):
        density = densities.get(part.oid, Density(_ASSUMED_ROWS_PER_BLOCK, BLOCK_BYTES))
        fitting = int(min(rows_left / density.rows, bytes_left / density.bytes))
        if index == 0:
            fitting = max(fitting, 1)
        if fitting < part.blocks - block:
            return scan.taken(index, block + fitting)
        rows_left -= (part.blocks - block) * density.rows
        bytes_left -= (part.blocks - block) * density.bytes
        block = 0
    return None


def pieces_between(start: Scan, end: Scan | None, leaves: Mapping[int, Leaf]) -> list[Piece]:
    """Return what a step from *start* to *end* reads, in order."""
    left = end.parts if end is not None else ()
    count = len(start.parts) - len(left)
    pieces = []
    for index, part in enumerate(start.parts[: count + 1]):
        first = start.block if index == 0 else 0
        last = part.blocks if index < count else (end.block if end is not None else 0)
        if last > first and part.oid in leaves:
            pieces.append(Piece(part.table, leaves[part.oid].sql, part.oid, part.filenode, first, last))
    return pieces


def split(pieces: Sequence[Piece], densities: Mapping[int, Density], *, count: int, bytes_: int) -> list[list[Piece]]:
    """Divide *pieces* into *count* shares of about the same size, or more where a share would exceed *bytes_*."""
    weights = [densities.get(piece.oid, Density(1, BLOCK_BYTES)).bytes for piece in pieces]
    total = sum((piece.end - piece.first) * weight for piece, weight in zip(pieces, weights, strict=True))
    share = min(max(total / count, BLOCK_BYTES), bytes_)
    shares: list[list[Piece]] = [[]]
    room = share
    for piece, weight in zip(pieces, weights, strict=True):
        first = piece.first
        while first < piece.end:
            blocks = min(piece.end - first, max(1, round(room / weight)))
            shares[-1].append(Piece(piece.table, piece.leaf, piece.oid, piece.filenode, first, first + blocks))
            first += blocks
            room -= blocks * weight
            if room < weight / 2:
                shares.append([])
                room = share
    return [found for found in shares if found]


def read_scan(
    server: Server, connection: Any, slice_: ScanSlice, options: PostgresOptions, *, mvcc: bool
) -> Iterator[RowBatch | Mark]:
    """Yield the rows of a slice, and a mark for each table in it. *connection* is ADBC's, to be closed after an error.

    Raises: RetryableRangefeedError when the snapshot is gone or a table was rewritten: the planner then begins a round.
    """
    cursor = connection.cursor()
    try:
        with server.translated("reading the initial scan"):
            cursor.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                cursor.execute(f"SET TRANSACTION SNAPSHOT '{slice_.snapshot}'")
            except ClientError as error:
                if sqlstate(error) in _MISSING_SNAPSHOT:
                    raise RetryableRangefeedError(
                        "the snapshot of the initial scan's round is gone; the next round takes another",
                        retry_after_s=0.0,
                    ) from None
                raise
            cursor.execute(f"SET LOCAL lock_timeout = '{int(options.lock_timeout * 1000)}ms'")
            for piece in slice_.pieces:
                yield from _read_piece(cursor, piece, slice_, options, mvcc=mvcc)
            cursor.execute("ROLLBACK")
    finally:
        with suppress(*ClientError):
            cursor.close()
    for table in dict.fromkeys(piece.table for piece in slice_.pieces):
        span = Span(slice_.versions[table].schema.name.full)
        yield Mark(span=span, timestamp=slice_.at, resolved=False)


def _read_piece(
    cursor: Any, piece: Piece, slice_: ScanSlice, options: PostgresOptions, *, mvcc: bool
) -> Iterator[RowBatch]:
    version = slice_.versions[piece.table]
    try:
        cursor.execute(f"LOCK TABLE ONLY {piece.leaf} IN ACCESS SHARE MODE")
        # After the lock: the file cannot change any more, and the function sees through the snapshot.
        cursor.execute(f"SELECT pg_relation_filenode({piece.oid}::oid)::bigint")
        if cursor.fetchone()[0] != piece.filenode:
            raise RetryableRangefeedError(
                f"table {piece.table} was rewritten during the initial scan; its scan starts over", retry_after_s=0.0
            )
        own_time = mvcc and slice_.commit_times
        columns = select_list(version) + (", pg_xact_commit_timestamp(xmin)" if own_time else "")
        query = (
            f"SELECT {columns} FROM ONLY {piece.leaf} "
            f"WHERE ctid >= '({piece.first},0)'::tid AND ctid < '({piece.end},0)'::tid"
        )
        for batch in stream(cursor, query, batch_bytes=options.fetch_size):
            if batch.num_rows:
                yield _rows(batch, version, slice_.at, mvcc=mvcc, own_time=own_time)
    except ClientError as error:
        if sqlstate(error) in _GONE:
            raise RetryableRangefeedError(
                f"table {piece.table} or a column of it was dropped during the initial scan"
            ) from None
        raise


def _rows(batch: pa.RecordBatch, version: TableVersion, at: Timestamp, *, mvcc: bool, own_time: bool) -> RowBatch:
    count = batch.num_rows
    schema = version.schema
    after = to_struct(batch, version)
    names = [column.name for column in schema.columns]
    updated = _repeated(at, count)
    written = updated
    if mvcc and own_time:
        walls = batch.column(len(names)).cast(pa.timestamp("us", "UTC")).view(pa.int64())
        known = pa.compute.multiply(walls, 1000)
        at_most = pa.compute.min_element_wise(pa.compute.fill_null(known, at.wall), pa.scalar(at.wall, pa.int64()))
        written = RowBatch.timestamps(at_most, pa.repeat(pa.scalar(0, pa.int32()), count))
    return RowBatch.of(
        schema,
        op=pa.repeat(pa.scalar(int(Op.SCAN), pa.uint8()), count),
        updated=updated,
        mvcc=written if mvcc else None,
        key=RowBatch.struct(schema.key_type, [after.field(names.index(name)) for name in schema.primary_key]),
        after=after,
    )


def _repeated(at: Timestamp, count: int) -> pa.StructArray:
    return RowBatch.timestamps(
        pa.repeat(pa.scalar(at.wall, pa.int64()), count), pa.repeat(pa.scalar(at.logical, pa.int32()), count)
    )
