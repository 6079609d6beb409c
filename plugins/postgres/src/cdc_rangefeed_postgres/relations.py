"""Relation messages of pgoutput: the log announces the shape of a table before the first row with that shape."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cdc_rangefeed_postgres.connection import Connection, Server
from cdc_rangefeed_postgres.lost_history import explained
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.temporary import readable
from cdc_rangefeed_postgres.types import PgColumn

__all__ = ["Relation", "find_relations", "relation_columns", "shape"]


@dataclass(frozen=True, slots=True)
class Relation:
    """A Relation message."""

    relid: int
    namespace: str
    name: str
    replica_identity: str
    """pg_class.relreplident: d, n, f or i."""
    columns: tuple[PgColumn, ...]
    types: Mapping[int, str] = field(default_factory=dict, compare=False)
    """The types that are announced with it, by oid: `schema.name`, of a domain that of the type under it. Only from
    `find_relations`."""

    @property
    def shape(self) -> tuple[tuple[str, int, int], ...]:
        """See `shape`."""
        return shape(self.columns)


def shape(columns: tuple[PgColumn, ...]) -> tuple[tuple[str, int, int], ...]:
    """Return (name, oid, typmod) of each column. Two versions of a table differ in it, or in the key."""
    return tuple((column.name, column.oid, column.typmod) for column in columns)


def relation_columns(message: bytes) -> Relation:
    """Decode a Relation message (first byte `R`) of protocol version 1."""
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


def find_relations(
    server: Server, connection: Connection, slot: Slot, *, start: int, end: int
) -> list[tuple[Relation, bool]]:
    """Return the Relation messages in the log up to *end*, each with whether it lies at or after *start*.

    The server decodes all changes but sends only these messages. Raises: as `explained` when history is lost.
    """
    with explained(server, slot, needed=start), readable(connection, slot) as log:
        query = f"""
            SELECT data FROM (
                SELECT ord, data, get_byte(data, 0) AS kind, lead(get_byte(data, 0)) OVER (ORDER BY ord) AS next
                FROM {log.peek(end, binary=False)} WITH ORDINALITY AS m(lsn, xid, data, ord)
                WHERE get_byte(data, 0) IN (66, 82, 89)
            ) AS f WHERE kind <> 66 OR next <> 66 ORDER BY ord"""
        messages = connection.execute(query).fetchall()
    found = []
    inside, beyond = True, False
    types: dict[int, str] = {}
    for (data,) in messages:
        if data[0] == ord("B"):
            final_lsn = int.from_bytes(data[1:9], "big")
            inside, beyond = final_lsn >= start, final_lsn >= end
        elif data[0] == ord("Y"):
            schema, position = _string(data, 5)
            types[int.from_bytes(data[1:5], "big")] = f"{schema or 'pg_catalog'}.{_string(data, position)[0]}"
        elif not beyond:
            found.append((replace(relation_columns(data), types=types), inside))
            types = {}
    return found


def _string(message: bytes, position: int) -> tuple[str, int]:
    end = message.index(0, position)
    return message[position:end].decode(), end + 1
