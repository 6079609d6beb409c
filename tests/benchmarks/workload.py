"""The table that every benchmark uses, and what is done to it.

Eight columns: two bigint, three short text, double, int, timestamptz; a line of about 225 bytes in our files.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import psycopg

TABLE = "public.orders"
TRANSACTION_ROWS = 1000

_CREATE = f"""
CREATE TABLE {TABLE} (
    id bigint PRIMARY KEY,
    customer bigint NOT NULL,
    city text NOT NULL,
    status text NOT NULL,
    note text,
    price double precision,
    amount integer,
    created timestamptz NOT NULL
) WITH (fillfactor = 50)
"""
_FILL = f"""
INSERT INTO {TABLE}
SELECT n, 1 + n * 7919 %% 1000000,
    (ARRAY['amsterdam', 'boston', 'seattle'])[1 + n %% 3], (ARRAY['new', 'paid', 'sent'])[1 + n %% 3],
    'note ' || n %% 9973, round((random() * 1000)::numeric, 2)::float8, n %% 100, clock_timestamp()
FROM generate_series(%s::bigint, %s::bigint) AS n
"""
_UPDATE = """
CREATE OR REPLACE PROCEDURE update_orders(changes bigint, transaction_rows bigint, keys bigint)
LANGUAGE plpgsql AS $$
DECLARE
    done bigint := 0;
    first bigint;
BEGIN
    WHILE done < changes LOOP
        first := done % keys;
        UPDATE public.orders SET
            status = (ARRAY['new', 'paid', 'sent'])[1 + (id + done) % 3],
            price = round((random() * 1000)::numeric, 2)::float8,
            amount = (amount + 1) % 100,
            created = clock_timestamp()
        WHERE id > first AND id <= first + least(transaction_rows, changes - done);
        done := done + transaction_rows;
        COMMIT;
    END LOOP;
END $$
"""
_FILL_ROWS = 100_000
_EVEN_CHANGES_PER_S = 1000
_EVEN_ROWS = 10
"""Rows of a transaction: 100 transactions a second."""


def connect(uri: str) -> psycopg.Connection[Any]:
    """Return a connection in autocommit, to be closed by the caller."""
    return psycopg.connect(uri, autocommit=True)


def create_table(uri: str, rows: int) -> None:
    """Create the table with *rows* rows, vacuumed and checkpointed so that no benchmark pays for that."""
    with connect(uri) as connection:
        connection.execute(_CREATE)
        connection.execute(_UPDATE)
        for first in range(1, rows + 1, _FILL_ROWS):
            connection.execute(_FILL, (first, min(first + _FILL_ROWS - 1, rows)))
        connection.execute(f"VACUUM (FREEZE, ANALYZE) {TABLE}")
        connection.execute("CHECKPOINT")


def update_rows(uri: str, changes: int, *, keys: int, transaction_rows: int = TRANSACTION_ROWS) -> None:
    """Commit *changes* updates in transactions of *transaction_rows*, round and round over the first *keys* keys.

    *changes* and *keys* are multiples of *transaction_rows*, so that exactly as many rows change as were asked for.
    """
    assert changes % transaction_rows == 0
    assert keys % transaction_rows == 0
    with connect(uri) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute("CALL update_orders(%s, %s, %s)", (changes, transaction_rows, keys))
        _flush(connection)


def insert_rows(uri: str, rows: int, *, after: int) -> None:
    """Commit *rows* new rows, with keys above *after*, in transactions of TRANSACTION_ROWS."""
    with connect(uri) as connection:
        connection.execute("SET synchronous_commit = off")
        for first in range(after + 1, after + rows + 1, TRANSACTION_ROWS):
            connection.execute(_FILL, (first, first + TRANSACTION_ROWS - 1))
        _flush(connection)


def insert_at_once(uri: str, rows: int, *, after: int) -> None:
    """Commit *rows* new rows in one transaction, with keys above *after*."""
    with connect(uri) as connection:
        connection.execute(_FILL, (after + 1, after + rows))


def commit_evenly(uri: str, seconds: float, *, keys: int) -> None:
    """Commit 100 transactions of 10 updates a second for *seconds*; see `_commit_evenly`."""
    transactions = int(seconds * _EVEN_CHANGES_PER_S / _EVEN_ROWS)
    _commit_evenly(uri, transactions, keys=keys, rows=_EVEN_ROWS, changes_per_s=_EVEN_CHANGES_PER_S)


@contextmanager
def writing_transaction(uri: str) -> Iterator[None]:
    """Keep a transaction open that has written, so that the server decodes from its beginning."""
    with psycopg.connect(uri) as connection:
        connection.execute("SELECT pg_logical_emit_message(true, 'bench', '')")
        yield


@contextmanager
def changing(uri: str, *, keys: int, changes_per_s: int) -> Iterator[None]:
    """Commit transactions of 1,000 updates inside the block, *changes_per_s* in all, by a process of its own.

    Raises: RuntimeError when the process ended before the block.
    """
    writer = get_context("spawn").Process(
        target=_commit_evenly,
        args=(uri, sys.maxsize),
        kwargs={"keys": keys, "rows": TRANSACTION_ROWS, "changes_per_s": changes_per_s},
        daemon=True,
    )
    writer.start()
    try:
        yield
        if not writer.is_alive():
            raise RuntimeError("the writer ended before its time")
    finally:
        writer.kill()
        writer.join()


def _commit_evenly(uri: str, transactions: int, *, keys: int, rows: int, changes_per_s: int) -> None:
    """Commit *transactions* of *rows* updates each; one that comes late does not move those after it.

    Each is one statement that writes the database's clock into its rows: the time in a row lies a little before its
    commit.
    """
    pause = threading.Event()
    interval_s = rows / changes_per_s
    with connect(uri) as connection:
        began = time.monotonic()
        for number in range(transactions):
            pause.wait(max(0.0, began + number * interval_s - time.monotonic()))
            first = number * rows % keys
            connection.execute(
                f"UPDATE {TABLE} SET amount = (amount + 1) %% 100, created = clock_timestamp()"
                " WHERE id > %s AND id <= %s",
                (first, first + rows),
            )


def _flush(connection: psycopg.Connection[Any]) -> None:
    """Return when everything committed is flushed: what is read is bounded by what is flushed."""
    connection.execute("CHECKPOINT")
