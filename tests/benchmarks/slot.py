"""The log of one slot as the rangefeed gets it: pgoutput messages in Arrow arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
from benchmarks.context import Bench
from benchmarks.workload import TABLE, connect, create_table, update_rows

_KEYS = 100_000
_NAME = "bench"
_PEEK = (
    f"SELECT data FROM pg_logical_slot_peek_binary_changes('{_NAME}', NULL, NULL,"
    f" 'proto_version', '1', 'publication_names', '{_NAME}', 'binary', 'true')"
)


@dataclass(frozen=True)
class Slot:
    uri: str

    def messages(self) -> Iterator[pa.Array]:
        """Yield all messages of the slot, in log order; nothing is released."""
        with adbc.connect(self.uri) as connection, connection.cursor() as cursor:
            cursor.execute(_PEEK)
            for batch in cursor.fetch_record_batch():
                yield batch.column(0)


@contextmanager
def backlog(bench: Bench, changes: int) -> Iterator[Slot]:
    """Yield a slot that has *changes* updates to read."""
    with bench.database("bench_slot") as uri:
        create_table(uri, _KEYS)
        with connect(uri) as connection:
            connection.execute(f"CREATE PUBLICATION {_NAME} FOR TABLE {TABLE}")
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (_NAME,))
        update_rows(uri, changes, keys=_KEYS)
        yield Slot(uri)
