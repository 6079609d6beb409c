"""A temporary copy of a changefeed's slot: a reader consumes it in intervals, and the slot itself stays where it is."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any, Self

import pyarrow as pa

from cdc_core import RetryableRangefeedError
from cdc_rangefeed_postgres.client_errors import ClientError
from cdc_rangefeed_postgres.connection import stream
from cdc_rangefeed_postgres.lsn import lsn_text, parse_lsn
from cdc_rangefeed_postgres.names import copy_name
from cdc_rangefeed_postgres.slot import Slot

_IS_FAILOVER = """
SELECT coalesce(bool_or(to_jsonb(s) ->> 'failover' = 'true'), false) FROM pg_replication_slots s
WHERE slot_name = '{slot}'
"""
_FIRST_BYTES = 8 << 20
_LARGEST_BYTES = 64 << 20
# While it decodes, the server notices a reader that was killed, and drops the copy. Not every platform can.
_NOTICE = "SELECT set_config('client_connection_check_interval', '1s', false)"


class SlotCopy:
    """A copy that one reader consumes. It belongs to *connection*, an ADBC connection, and ends with it at the latest.

    An error of the server on this connection also drops the copy. All methods raise client errors, not translated.
    """

    def __init__(self, connection: Any, slot: Slot, name: str) -> None:
        self._connection = connection
        self._slot = slot
        self._name = name
        self.begin = 0
        """The LSN from which the copy has changes."""

    @classmethod
    def make(cls, connection: Any, slot: Slot, *, start: int) -> Self | None:
        """Return a copy of *slot* that begins at *start*, or later when the slot does.

        None of a failover slot: what the copy gives would not wait for the standbys.
        """
        copy = cls(connection, slot, copy_name(slot.name))
        with suppress(*ClientError):
            copy._row(_NOTICE)
        if copy.is_failover():
            return None
        copied = f"SELECT lsn::text FROM pg_copy_logical_replication_slot('{slot.name}', '{copy._name}', true)"
        copy.begin = parse_lsn(copy._row(copied)[0])
        if copy.begin < start:
            copy._row(f"SELECT end_lsn::text FROM pg_replication_slot_advance('{copy._name}', '{lsn_text(start)}')")
            copy.begin = start
        return copy

    def is_failover(self) -> bool:
        """Return whether the slot that this is a copy of is a failover slot."""
        return bool(self._row(_IS_FAILOVER.format(slot=self._slot.name))[0])

    def fetches(self, end: int, *, binary: bool, batch_bytes: int, whole: bool = False) -> Generator[pa.Array]:
        """Yield the messages that `Slot.peek` has up to *end*, in intervals of the log; with *whole* in one.

        The server decodes an interval whole before it sends the first byte of it, so the first one is small. It decodes
        from the copy's restart point each time, so each one is at least twice as long as what is decoded again.
        A caller that does not iterate to the end closes the connection.
        """
        size, before = end if whole else _FIRST_BYTES, -1
        while True:
            position, restart = self._positions()
            if position >= end:
                break
            if position == before:
                raise RetryableRangefeedError(
                    f"the server's log ends before {lsn_text(end)}, where the step ends: the server was promoted, or is"
                    " replaying its log"
                )
            before = position
            upto = position + max(size, 2 * (position - restart))
            if upto > end - _FIRST_BYTES:
                upto = end
            query = f"SELECT data FROM {self._slot.consume(self._name, upto, binary=binary)}"
            with self._connection.cursor() as cursor:
                for batch in stream(cursor, query, batch_bytes=batch_bytes):
                    yield batch.column(0)
            size = min(2 * size, _LARGEST_BYTES)

    def drop(self) -> None:
        """Drop the copy before its connection ends."""
        self._row(f"SELECT pg_drop_replication_slot('{self._name}')::text")

    def cancel(self) -> None:
        """End the statement that another thread runs in `fetches`."""
        with suppress(*ClientError):
            self._connection.adbc_connection.cancel()

    def _positions(self) -> tuple[int, int]:
        """Return the LSN from which the copy has changes, and the one from which the server decodes."""
        found = self._row(
            "SELECT confirmed_flush_lsn::text, restart_lsn::text FROM pg_replication_slots "
            f"WHERE slot_name = '{self._name}'"
        )
        return parse_lsn(found[0]), parse_lsn(found[1])

    def _row(self, query: str) -> tuple[Any, ...]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            row: tuple[Any, ...] = cursor.fetchone()
        return row
