"""The blocks of tables, which the initial scan divides into steps and slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from cdc_core import RetryableRangefeedError
from cdc_rangefeed_postgres.catalog import Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.token import Part, Scan

BLOCK_BYTES = 8192
_ASSUMED_ROWS_PER_BLOCK = 60.0
_PIECE_BYTES = 128 * 1024
"""Bytes that are read and delivered in the time that the queries for one more piece take, 1 to 2 ms."""

_SURVEY = """
SELECT c.oid::bigint, pg_relation_filenode(c.oid)::bigint, pg_relation_size(c.oid) / current_setting('block_size')::int,
       CASE WHEN c.reltuples > 0 AND c.relpages > 0 THEN c.reltuples::float8 / c.relpages END,
       pg_table_size(c.oid)::float8 / greatest(pg_relation_size(c.oid), 1)
FROM pg_class c WHERE c.oid = ANY(%s::oid[])
"""
_LOCKED = """
SELECT EXISTS (SELECT FROM pg_locks WHERE granted AND locktype = 'relation' AND mode = 'AccessExclusiveLock'
    AND relation = ANY(%s::oid[]) AND pid IS DISTINCT FROM pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
"""


@dataclass(frozen=True, slots=True)
class Density:
    """How much a block of a table holds on average, estimated."""

    rows: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Piece:
    """The blocks from `first` (inclusive) to `end` (exclusive) of one table or partition."""

    table: str
    leaf: str
    """Its name in SQL."""
    oid: int
    filenode: int
    first: int
    end: int
    root: str | None = None
    """Of a partition that was detached: the name in SQL of the table that its rows are deleted from."""
    where: str | None = None
    """A predicate in SQL that the rows to read satisfy."""


def survey(connection: Connection, oids: Sequence[int]) -> dict[int, tuple[int, int, Density]]:
    """Return file, number of blocks and density of each of *oids* that exists.

    Raises: RetryableRangefeedError when one of them was rewritten at the same time.
    """
    oids = list(oids)
    found = {}
    for oid, filenode, blocks, rows, weight in connection.execute(_SURVEY, [oids]).fetchall():
        density = Density(rows=rows or _ASSUMED_ROWS_PER_BLOCK, bytes=BLOCK_BYTES * max(weight, 1.0))
        found[oid] = (filenode, blocks, density)
    again = filenodes(connection, oids)
    if any(again.get(oid) != filenode for oid, (filenode, _, _) in found.items()):
        raise RetryableRangefeedError("a table was rewritten while the initial scan was being planned", outage=False)
    return found


def filenodes(connection: Connection, oids: Sequence[int]) -> dict[int, int]:
    """Return the present file of each of *oids* that exists."""
    return dict(
        connection.execute(
            "SELECT oid::bigint, pg_relation_filenode(oid)::bigint FROM pg_class WHERE oid = ANY(%s::oid[])",
            [list(oids)],
        ).fetchall()
    )


def are_locked(connection: Connection, oids: Sequence[int]) -> bool:
    """Return whether a session holds a lock on one of *oids* that reading would wait for. Waits for none itself."""
    row = connection.execute(_LOCKED, [list(oids)]).fetchone()
    return row is not None and bool(row[0])


def first_parts(tables: Sequence[Table], found: Mapping[int, tuple[int, int, Density]]) -> tuple[Part, ...]:
    """Return all that the initial scan of *tables* must read. Empty tables are left out."""
    return tuple(
        Part(table=table.name.qualified, oid=leaf.oid, filenode=found[leaf.oid][0], blocks=found[leaf.oid][1])
        for table in tables
        for leaf in table.leaves
        if leaf.oid in found and found[leaf.oid][1] > 0
    )


def take(scan: Scan, densities: Mapping[int, Density], *, rows: int, bytes_: int) -> Scan | None:
    """Return the rest of *scan* after a step of about *rows* rows or *bytes_* bytes; None when nothing is left.

    A step has no table twice, so that no key is in two of its slices.
    """
    rows_left, bytes_left = float(rows), float(bytes_)
    block = scan.block
    seen = set()
    for index, part in enumerate(scan.parts):
        if part.oid in seen:
            return scan.without(index, 0)
        seen.add(part.oid)
        density = densities.get(part.oid, Density(_ASSUMED_ROWS_PER_BLOCK, BLOCK_BYTES))
        fitting = int(min(rows_left / density.rows, bytes_left / density.bytes))
        if index == 0:
            fitting = max(fitting, 1)
        if fitting < part.blocks - block:
            return scan.without(index, block + fitting)
        rows_left -= (part.blocks - block) * density.rows
        bytes_left -= (part.blocks - block) * density.bytes
        block = 0
    return None


def pieces_between(start: Scan, end: Scan | None, tables: Mapping[str, Table]) -> list[Piece]:
    """Return the pieces that a step from *start* to *end* reads, in order."""
    leaves = {leaf.oid: leaf for table in tables.values() for leaf in table.leaves}
    left = end.parts if end is not None else ()
    count = len(start.parts) - len(left)
    pieces = []
    for index, part in enumerate(start.parts[: count + 1]):
        first = start.block if index == 0 else 0
        last = part.blocks if index < count else (end.block if end is not None else 0)
        if last <= first:
            continue
        if part.detached is not None:
            root = tables[part.table].sql
            pieces.append(Piece(part.table, part.detached, part.oid, part.filenode, first, last, root))
        elif part.oid in leaves:
            leaf = leaves[part.oid].sql
            pieces.append(Piece(part.table, leaf, part.oid, part.filenode, first, last, where=part.where))
    return pieces


def split(pieces: Sequence[Piece], densities: Mapping[int, Density], *, count: int, bytes_: int) -> list[list[Piece]]:
    """Divide *pieces* into *count* shares that take about equally long, or into more where one would exceed *bytes_*.

    A piece takes as long as its bytes and `_PIECE_BYTES` more: hundreds of small tables are not one share.
    """
    weights = [densities.get(piece.oid, Density(1, BLOCK_BYTES)).bytes for piece in pieces]
    total = sum((piece.end - piece.first) * weight for piece, weight in zip(pieces, weights, strict=True))
    blocks = sum(piece.end - piece.first for piece in pieces)
    wanted = min(max(count, ceil(total / bytes_)), max(blocks, 1))
    total += _PIECE_BYTES * len(pieces)
    shares: list[list[Piece]] = [[]]
    begun = 0.0
    """The cost of all that is in a share."""
    for piece, weight in zip(pieces, weights, strict=True):
        first = piece.first
        begun += _PIECE_BYTES
        while first < piece.end:
            room = total * len(shares) / wanted - begun
            last = len(shares) == wanted
            taken = piece.end - first if last else min(piece.end - first, max(1, round(room / weight)))
            shares[-1].append(replace(piece, first=first, end=first + taken))
            first += taken
            begun += taken * weight
            if not last and total * len(shares) / wanted - begun < max(weight, _PIECE_BYTES) / 2:
                shares.append([])
    return [found for found in shares if found]
