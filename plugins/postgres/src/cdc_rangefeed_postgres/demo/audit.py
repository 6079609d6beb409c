"""Does what arrived make up the database? Replays a directory of JSON files and compares the result with the tables.

The comparison is the server's own: each replayed row is turned back into a row of its table (`jsonb_populate_record`),
and the two sets of rows are compared in their text form, so that not even a numeric's scale may differ. That alone
would take a column that a message lacks for null, and would not look at keys, so both are compared by themselves.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import zstandard
from cdc_sink_cloudstorage.names import DataFile, ResolvedFile, parse_name
from psycopg import sql

from cdc_core import Timestamp

__all__ = ["Audit", "Replay", "audit", "replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """`rows` messages and `resolved` marks were read; `missing` rows of the database are not in the files or differ,
    `extra` rows of the files are not in the database, differ, or have other columns or another key than their table
    gives them; `out_of_order` messages broke order or a resolved mark.
    """

    rows: int
    resolved: int
    missing: int
    extra: int
    out_of_order: int

    @property
    def passed(self) -> bool:
        return self.rows > 0 and self.resolved > 0 and self.missing == self.extra == self.out_of_order == 0

    def __str__(self) -> str:
        return (
            f"rows={self.rows} resolved={self.resolved} missing={self.missing} extra={self.extra}"
            f" out_of_order={self.out_of_order}"
        )


@dataclass(slots=True)
class Replay:
    """What a consumer of the files holds: the tables as of the last resolved mark.

    `tables` maps topic -> key -> (updated, the message as it was read, None for a deleted row). Memory grows with the
    tables, and with the distinct row versions, which are remembered to tell a repeat from a row out of order.
    """

    tables: dict[str, dict[str, tuple[Timestamp, bytes | None]]] = field(default_factory=dict)
    rows: int = 0
    resolved: int = 0
    last_resolved: Timestamp = Timestamp()
    out_of_order: list[str] = field(default_factory=list)
    _seen: set[tuple[str, str, Timestamp]] = field(default_factory=set)
    _latest: dict[tuple[str, str], Timestamp] = field(default_factory=dict)
    _unresolved: list[tuple[str, str, Timestamp, bytes | None]] = field(default_factory=list)

    def note_row(self, topic: str, message: bytes) -> None:
        """Take one message, in the order of the files."""
        self.rows += 1
        value = json.loads(message)
        key, updated = json.dumps(value["key"]), Timestamp.parse(value["updated"])
        if (topic, key, updated) in self._seen:
            return
        self._seen.add((topic, key, updated))
        latest = self._latest.get((topic, key), Timestamp())
        if updated < latest:
            self.out_of_order.append(f"{topic} {key}: new row {updated} after {latest} was seen")
        if updated <= self.last_resolved:
            self.out_of_order.append(f"{topic} {key}: new row {updated} after {self.last_resolved} was resolved")
        self._latest[topic, key] = max(latest, updated)
        self._unresolved.append((topic, key, updated, None if value["after"] is None else message))

    def note_resolved(self, timestamp: Timestamp) -> None:
        """Take one resolved mark: what it covers becomes part of the tables."""
        self.resolved += 1
        self.last_resolved = max(self.last_resolved, timestamp)
        rest = []
        for topic, key, updated, message in self._unresolved:
            if updated > timestamp:
                rest.append((topic, key, updated, message))
                continue
            rows = self.tables.setdefault(topic, {})
            if key not in rows or rows[key][0] <= updated:
                rows[key] = (updated, message)
        self._unresolved = rest


def replay(directory: Path) -> Replay:
    """Return what the files below *directory* make up, read in lexicographic order of their paths."""
    result = Replay()
    for path in sorted(directory.rglob("*"), key=lambda path: str(path.relative_to(directory))):
        name = parse_name(str(path))
        if isinstance(name, ResolvedFile):
            result.note_resolved(name.timestamp)
        elif isinstance(name, DataFile):
            for line in _lines(path):
                result.note_row(name.topic, line)
    return result


def audit(directory: Path, uri: str, tables: Sequence[str]) -> Audit:
    """Compare the files below *directory* with the *tables* (schema public, by name) of the database at *uri*.

    Means something only when nothing was committed after the last resolved mark.
    """
    found = replay(directory)
    missing = extra = 0
    with psycopg.connect(uri) as connection:
        for table in tables:
            lacking, surplus = _compare(connection, table, found.tables.get(table, {}))
            missing, extra = missing + lacking, extra + surplus
    return Audit(
        rows=found.rows,
        resolved=found.resolved,
        missing=missing,
        extra=extra,
        out_of_order=len(found.out_of_order),
    )


def _compare(
    connection: psycopg.Connection[Any], table: str, rows: dict[str, tuple[Timestamp, bytes | None]]
) -> tuple[int, int]:
    """Return how many rows of *table* are not among *rows*, and how many of *rows* are not in *table*."""
    connection.execute("CREATE TEMPORARY TABLE IF NOT EXISTS replayed (message jsonb)")
    connection.execute("TRUNCATE replayed")
    with connection.cursor().copy("COPY replayed FROM STDIN") as copy:
        for _, message in rows.values():
            if message is not None:
                copy.write_row([message.decode()])
    name = sql.Identifier("public", table)
    arrived = sql.SQL("SELECT jsonb_populate_record(NULL::{}, message->'after')::text FROM replayed").format(name)
    there = sql.SQL("SELECT t::text FROM {} t").format(name)
    counts = []
    for left, right in ((there, arrived), (arrived, there)):
        query = sql.SQL("SELECT count(*) FROM ({} EXCEPT ALL {}) AS difference").format(left, right)
        row = connection.execute(query).fetchone()
        assert row is not None
        counts.append(int(row[0]))
    return counts[0], counts[1] + _misshapen(connection, name)


def _misshapen(connection: psycopg.Connection[Any], name: sql.Identifier) -> int:
    """Return how many replayed rows of table *name* have other columns than it, or a key that is not their own."""
    table = name.as_string(connection)
    row = connection.execute(
        'SELECT array_agg(attname::text ORDER BY attname::text COLLATE "C") FROM pg_attribute'
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
        [table],
    ).fetchone()
    key = connection.execute(
        "SELECT array_agg(attname::text ORDER BY array_position(indkey::int2[], attnum)) FROM pg_index"
        " JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey::int2[])"
        " WHERE indrelid = %s::regclass AND indisprimary",
        [table],
    ).fetchone()
    assert row is not None
    assert key is not None
    found = connection.execute(
        """SELECT count(*) FROM replayed
        WHERE (SELECT array_agg(k ORDER BY k COLLATE "C") FROM jsonb_object_keys(message->'after') AS k)
                IS DISTINCT FROM %s::text[]
           OR (SELECT jsonb_agg(message->'after'->k ORDER BY n) FROM unnest(%s::text[]) WITH ORDINALITY AS u(k, n))
                IS DISTINCT FROM message->'key'""",
        [row[0], key[0]],
    ).fetchone()
    assert found is not None
    return int(found[0])


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as raw:
        stream: Any = raw
        if path.suffix == ".gz":
            stream = gzip.GzipFile(fileobj=raw)
        elif path.suffix == ".zst":
            stream = io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw))
        yield from stream
