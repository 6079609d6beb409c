"""Relation messages of pgoutput: the log announces the shape of a table before the first row with that shape."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cdc_core import RetryableRangefeedError
from cdc_rangefeed_postgres.connection import Connection, Server, any_bytes
from cdc_rangefeed_postgres.fields import Ints, Messages
from cdc_rangefeed_postgres.lost_history import explained
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.temporary import readable
from cdc_rangefeed_postgres.types import PgColumn, TableVersion

_RELATION = ord("R")


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
        with any_bytes(connection):
            messages = connection.execute(query.encode()).fetchall()
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


class RelationTracker:
    """Matches the Relation messages of a slice with the listed versions of each table, forward only.

    A Relation message is matched when a row of the slice follows it. Messages in transactions before the slice may
    announce versions that are not listed. Tables without any listed version are published but not watched, and skipped.
    """

    def __init__(self, versions: Mapping[int, Sequence[TableVersion]]) -> None:
        self._versions = versions
        self._current = dict.fromkeys(versions, 0)
        self._announced: dict[int, Relation] = {}
        self._matched: dict[int, Relation] = {}

    def groups(self, messages: Messages, rows: Ints) -> Iterator[tuple[TableVersion, Ints]]:
        """Group *rows*: yield each version with its messages, the versions of a table in log order.

        Exhaust the iterator before the next call. Raises: RetryableRangefeedError.
        """
        at = np.flatnonzero(messages.kinds == _RELATION)
        announced: dict[int, list[tuple[int, Relation]]] = {}
        for index in at.tolist():
            relation = relation_columns(messages.message(index))
            announced.setdefault(relation.relid, []).append((index, relation))
        relids = messages.numbers(">u4", messages.starts[rows] + 1)
        for relid in np.unique(relids).tolist():
            if not self.watches(relid):
                continue
            group: list[Ints] = []
            version = None
            for shown, part in self._parts(relid, announced.get(relid, []), rows[relids == relid]):
                following = self._match(relid, shown)
                if version is not None and following is not version:
                    yield version, np.concatenate(group)
                    group = []
                version = following
                group.append(part)
            if version is not None:
                yield version, np.concatenate(group)
        for relid, relations in announced.items():
            self._announced[relid] = relations[-1][1]

    def watches(self, relid: int) -> bool:
        """Return whether rows of this table are wanted."""
        return relid in self._versions

    def name(self, relid: int) -> str:
        """Return the name of a table that is watched, for messages."""
        return str(self._versions[relid][0].schema.name)

    def _parts(
        self, relid: int, announced: Sequence[tuple[int, Relation]], rows: Ints
    ) -> Iterator[tuple[Relation | None, Ints]]:
        """Yield the rows of one table that follow each announcement, if there are any."""
        relations = [self._announced.get(relid), *(relation for _, relation in announced)]
        bounds = np.searchsorted(rows, [index for index, _ in announced])
        for relation, part in zip(relations, np.split(rows, bounds), strict=True):
            if len(part):
                yield relation, part

    def _match(self, relid: int, relation: Relation | None) -> TableVersion:
        versions = self._versions.get(relid, ())
        if relation is not None:
            if self._matched.get(relid) is relation:
                return versions[self._current[relid]]
            ahead = range(self._current.get(relid, 0), len(versions))
            # Versions from the log say what the replica identity has, versions from the catalog do not.
            same = [number for number in ahead if versions[number].columns == relation.columns]
            for number in same or [number for number in ahead if shape(versions[number].columns) == relation.shape]:
                self._current[relid] = number
                self._matched[relid] = relation
                return versions[number]
        raise RetryableRangefeedError(
            f"the schema of table {self.name(relid)} changed while its log was read", outage=False
        )
