"""Slices of the log: read from the slot as Arrow, decoded, and ended with marks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdc_core import RowBatch, Span, SpanMark, TerminalRangefeedError, Timestamp
from cdc_rangefeed_postgres.client_errors import ClientError, sqlstate
from cdc_rangefeed_postgres.completion import Lookup
from cdc_rangefeed_postgres.connection import Server, stream
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.pgoutput import LogDecoder
from cdc_rangefeed_postgres.remedies import NEW_SLOT
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.types import TableVersion
from cdc_rangefeed_postgres.whole_transactions import whole_transactions

__all__ = ["LogSlice", "read_log"]

_IN_USE = "55006"
_NOT_READY = ("55000", "42704", "58P01")
_IN_USE_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """The transactions in a slot's log with `start <= final_lsn < end`."""

    slot: Slot
    start: int
    end: int
    after: Timestamp
    until: Timestamp | None
    """Upper limit of the rows' timestamps, see LogDecoder."""
    mark: Timestamp | None
    """The timestamp of the slice's marks; None for that of its last transaction."""
    resolved: bool
    scanning: tuple[str, ...]
    """The tables, as `schema.table`, of which a scan is not complete."""
    binary: bool
    versions: Mapping[int, tuple[TableVersion, ...]]
    tables: tuple[str, ...]
    """Full names of all watched tables."""

    @property
    def all_versions(self) -> list[TableVersion]:
        return [version for found in self.versions.values() for version in found]


def read_log(
    server: Server,
    connection: Any,
    slice_: LogSlice,
    options: PostgresOptions,
    *,
    diff: bool,
    mvcc: bool,
    lookup: Lookup,
) -> Iterator[RowBatch | SpanMark]:
    """Yield the rows of a slice, and then a mark for each watched table.

    *connection* is an ADBC connection in autocommit mode; the caller closes it after an error. *lookup* reads unchanged
    large values that the log lacks, unless the option leaves them unavailable and their table is not being scanned.
    """
    decoder = LogDecoder(
        slice_.versions,
        start_lsn=slice_.start,
        end_lsn=slice_.end,
        after=slice_.after,
        until=slice_.until,
        diff=diff,
        mvcc=mvcc,
        lookup=lookup,
        lookup_in=None if options.unchanged_toast == "lookup" else slice_.scanning,
        target_bytes=options.fetch_size,
        truncate=options.truncate,
    )
    if slice_.end > slice_.start:
        query = f"SELECT data FROM {slice_.slot.peek(slice_.end, binary=slice_.binary)}"
        with server.translated("reading the log"):
            fetches = (batch.column(0) for batch in _batches(server, connection, query, slice_, options))
            for messages in whole_transactions(fetches, largest=options.fetch_size):
                yield from decoder.decode(messages)
    timestamp = decoder.latest if slice_.mark is None else slice_.mark
    for table in slice_.tables:
        yield SpanMark(span=Span(table), timestamp=timestamp, resolved=slice_.resolved)


def _batches(
    server: Server, connection: Any, query: str, slice_: LogSlice, options: PostgresOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the result of *query*. Wait a short time for a slot that its last reader has not released yet."""
    deadline = time.monotonic() + _IN_USE_LIMIT_S
    while True:
        cursor = connection.cursor()
        begun = False
        try:
            for batch in stream(cursor, query, batch_bytes=options.fetch_size):
                begun = True
                yield batch
            return
        except ClientError as error:
            state = sqlstate(error)
            if state == _IN_USE and not begun and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            if state in _NOT_READY:
                _explain(server, slice_)
            raise
        finally:
            with suppress(*ClientError):
                cursor.close()


def _explain(server: Server, slice_: LogSlice) -> None:
    """Raise HistoryLostError or TerminalRangefeedError when the slot or the publication was dropped."""
    connection = server.connect("explain")
    try:
        slice_.slot.require(connection, needed=slice_.start)
        row = connection.execute(
            "SELECT 1 FROM pg_publication WHERE pubname = %s", [slice_.slot.publication.name]
        ).fetchone()
    finally:
        connection.close()
    if row is None:
        raise TerminalRangefeedError(
            f"publication {slice_.slot.publication.name} was dropped, so the log can no longer be read. {NEW_SLOT}"
        )
