"""Compares the rows that a consumer has with the tables of the database.

The server compares them. It turns each replayed row into a row of its table again (`jsonb_populate_record`), and
compares both sets of rows in text form, where even the scale of a numeric makes a difference. This comparison would
accept a message without a column that is null, and it ignores keys. So columns and keys are compared separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from cdc_core import Timestamp
from cdc_rangefeed_postgres.demo.replay import Replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The counts of an audit. It passes when there are rows and marks, and all other counts are 0."""

    rows: int
    """Messages that were read."""
    resolved: int
    """Resolved marks that were read."""
    missing: int
    """Rows of the database that did not arrive, or arrived with other values."""
    extra: int
    """Rows that arrived and are not in the database, or have other values, columns or keys there."""
    out_of_order: int
    """Messages that came after a newer version of their key or after their resolved mark."""
    not_once: int | None = None
    """Rows that came twice, differed or were missing in a reading that promises each row exactly once."""

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

    A replayed row is JSON text with the fields `key`, a list, and `after`. The result is only valid when nothing was
    committed after the last resolved mark.
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
    """Return how many rows of *table* are missing in *rows*, and how many of *rows* are missing in *table*."""
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
    """Return how many replayed rows of table *name* have other columns than the table, or a wrong key."""
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
