"""Relation messages of pgoutput: the shape of a table as the log announces it before its rows."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cdc_rangefeed_postgres.types import PgColumn

__all__ = ["Relation", "relation_columns"]


@dataclass(frozen=True, slots=True)
class Relation:
    """A Relation message. In `columns`, `key` says that the column is part of the replica identity."""

    relid: int
    namespace: str
    name: str
    replica_identity: str
    """pg_class.relreplident: d, n, f or i."""
    columns: tuple[PgColumn, ...]

    @property
    def shape(self) -> tuple[tuple[str, int, int], ...]:
        """(name, oid, typmod) of each column: what tells one version of a table from another."""
        return shape(self.columns)


def shape(columns: tuple[PgColumn, ...]) -> tuple[tuple[str, int, int], ...]:
    """Return what two versions of a table are compared by."""
    return tuple((column.name, column.oid, column.typmod) for column in columns)


def relation_columns(message: bytes) -> Relation:
    """Return the content of a Relation message (first byte `R`) of protocol version 1."""
    (relid,) = struct.unpack_from(">I", message, 1)
    namespace, position = _string(message, 5)
    name, position = _string(message, position)
    identity, count = struct.unpack_from(">cH", message, position)
    position += 3
    columns = []
    for _ in range(count):
        flags = message[position]
        column, position = _string(message, position + 1)
        oid, typmod = struct.unpack_from(">Ii", message, position)
        position += 8
        columns.append(PgColumn(column, oid, typmod, bool(flags & 1)))
    return Relation(relid, namespace or "pg_catalog", name, identity.decode(), tuple(columns))


def _string(message: bytes, position: int) -> tuple[str, int]:
    end = message.index(0, position)
    return message[position:end].decode(), end + 1
