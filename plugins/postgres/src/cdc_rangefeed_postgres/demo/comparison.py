"""Does what arrived make up the database? Compares a replay with the tables.

The comparison is the server's own: each replayed row is turned back into a row of its table (`jsonb_populate_record`),
and the two sets of rows are compared in their text form, so that not even a numeric's scale may differ. That alone
would take a column that a message lacks for null, and would not look at keys, so both are compared by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from cdc_core import Timestamp
from cdc_rangefeed_postgres.demo.replay import Replay

__all__ = ["Audit", "compare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """`rows` messages and `resolved` marks were read; `missing` rows of the database did not arrive or differ,
    `extra` rows that arrived are not in the database, differ, or have other columns or another key than their table
    gives them; `out_of_order` messages broke order or a resolved mark; `not_once` rows came twice, differed or were
    missing where each must come exactly once, None where no such thing is promised.
    """

    rows: int
    resolved: int
    missing: int
    extra: int
    out_of_order: int
    not_once: int | None = None

    @property
    def passed(self) -> bool:
        faults = (self.missing, self.extra, self.out_of_order, self.not_once or 0)
        return self.rows > 0 and self.resolved > 0 and not any(faults)

    def __str__(self) -> str:
        return (
            f"rows={self.rows} resolved={self.resolved} missing={self.missing} extra={self.extra}"
            f" out_of_order={self.out_of_order}{'' if self.not_once is None else f' not_once={self.not_once}'}"
        )


def compare(replay: Replay, uri: str, tables: Sequence[str]) -> Audit:
    """Compare *replay* with the *tables* (schema public, by name) of the database at *uri*.

    A replayed row is JSON text with the fields `key`, a list, and `after`. The result means something only when nothing
    was committed after the last resolved mark.
    """
    missing = extra = 0
    with psycopg.connect(uri) as connection:
        for table in tables:
            lacking, surplus = _compare(connection, table, replay.tables.get(table, {}))
            missing, extra = missing + lacking, extra + surplus
    return Audit(
        rows=replay.rows,
        resolved=replay.resolved,
        missing=missing,
        extra=extra,
        out_of_order=len(replay.out_of_order),
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
