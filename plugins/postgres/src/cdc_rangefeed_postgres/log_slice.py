"""Slices of the log: read from the slot as Arrow, decoded, and ended with marks."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from cdc_core import RangefeedContext, RetryableRangefeedError, RowBatch, Span, SpanMark, Timestamp
from cdc_rangefeed_postgres.client_errors import ClientError, sqlstate, text_of
from cdc_rangefeed_postgres.connection import Server, stream
from cdc_rangefeed_postgres.log_socket import slice_from
from cdc_rangefeed_postgres.lost_history import explain, explained
from cdc_rangefeed_postgres.lsn import lsn_text
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.pgoutput import LogDecoder
from cdc_rangefeed_postgres.read_ahead import read_ahead
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.slot_copy import SlotCopy
from cdc_rangefeed_postgres.temporary import refuse_without_copy
from cdc_rangefeed_postgres.transaction_framing import TransactionClock, whole_transactions
from cdc_rangefeed_postgres.types import TableVersion
from cdc_rangefeed_postgres.unchanged_toast import Lookup

log = logging.getLogger(__name__)

_MOVED = "SELECT FROM pg_replication_slots WHERE slot_name = '{slot}' AND confirmed_flush_lsn > '{start}'"
"""Then what was read lacks transactions, and there was no error."""
_IN_USE = "55006"
_IN_USE_LIMIT_S = 10.0
_NO_COPY = ("53400", "42501", "42883", "0A000", "55000")
"""No free slot, no right, no such function, not supported, and a slot that is just being moved."""
WORTH_BYTES = 32 << 20
"""A slice of less log is not read faster from a copy, which takes some milliseconds."""
_AHEAD_BYTES = 32 << 20
_told: set[str] = set()
"""The slots of which this process has said that they are read without a copy."""


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
    lacking: Mapping[str, tuple[str, ...] | None]
    """By table, as `schema.table`: the columns of which a consumer may lack values, as they had other names when the
    table was last read; None for all, as a scan is not complete, or changes were left out by a move."""
    binary: bool
    versions: Mapping[int, tuple[TableVersion, ...]]
    tables: tuple[str, ...]
    """Full names of all watched tables."""
    endpoint: str = field(default="", repr=False)
    """Where the slot is, see `PostgresToken.endpoint`."""
    session: str = field(default="", repr=False)
    """The socket of the decoding session that has the slice, empty if none has."""

    @property
    def all_versions(self) -> list[TableVersion]:
        return [version for found in self.versions.values() for version in found]


def decoder_of(slice_: LogSlice, context: RangefeedContext, lookup: Lookup) -> LogDecoder:
    """Return what decodes the slice.

    *lookup* reads unchanged large values that the log lacks, unless the option leaves them unavailable and a consumer
    has those of their column.
    """
    options: PostgresOptions = context.options
    return LogDecoder(
        slice_.versions,
        TransactionClock(start_lsn=slice_.start, end_lsn=slice_.end, after=slice_.after, until=slice_.until),
        diff=context.diff,
        mvcc=context.mvcc,
        lookup=lookup,
        lookup_in=None if options.unchanged_toast == "lookup" else slice_.lacking,
        truncate=options.truncate,
    )


def read_log(
    server: Server, connection: Any, slice_: LogSlice, options: PostgresOptions, decoder: LogDecoder
) -> Generator[RowBatch | SpanMark]:
    """Yield the rows of a slice as *decoder* gives them, and then a mark for each watched table.

    *connection* is an ADBC connection in autocommit mode; the caller closes it after an error.
    """
    if slice_.end > slice_.start:
        with (
            server.translated("reading the log"),
            closing(_fetches(server, connection, slice_, options)) as fetches,
        ):
            for messages in whole_transactions(fetches, largest=options.fetch_size, start=slice_.start):
                yield from decoder.decode(messages, target_bytes=options.fetch_size)
    timestamp = decoder.latest if slice_.mark is None else slice_.mark
    for table in slice_.tables:
        yield SpanMark(span=Span(table), timestamp=timestamp, resolved=slice_.resolved)


def _fetches(server: Server, connection: Any, slice_: LogSlice, options: PostgresOptions) -> Generator[pa.Array]:
    """Return the messages of the log from at or before the slice's start to at or after its end."""
    if slice_.session:
        return _from_session(server, connection, slice_, options)
    worth = slice_.slot.temporary or slice_.end - slice_.start >= WORTH_BYTES
    copy = _copy(server, connection, slice_) if worth else None
    if copy is None:
        return _from_slot(server, connection, slice_, options)
    return _from_copy(server, copy, slice_, options)


def _from_session(server: Server, connection: Any, slice_: LogSlice, options: PostgresOptions) -> Generator[pa.Array]:
    """Yield what the decoding session has; what the server has, if the session does not give the slice.

    Raises: RetryableRangefeedError when the session ends after the first row.
    """
    shapes, begun = True, False
    try:
        for messages in slice_from(slice_.session, slice_.start, slice_.end):
            begun = begun or (not shapes and len(messages) > 0)
            shapes = False  # the first has only those of tables
            yield messages
        return
    except OSError as error:
        if begun:
            raise RetryableRangefeedError(f"the log was only partly read: {error}") from None
        log.debug("reading the slice by SQL, because the session cannot provide it: %s", error)
    with closing(_fetches(server, connection, replace(slice_, session=""), options)) as fetches:
        yield from fetches


def _from_copy(server: Server, copy: SlotCopy, slice_: LogSlice, options: PostgresOptions) -> Generator[pa.Array]:
    with explained(server, slice_.slot, needed=slice_.start):
        fetches = copy.fetches(slice_.end, binary=slice_.binary, batch_bytes=options.fetch_size)
        yield from read_ahead(fetches, max_bytes=_AHEAD_BYTES, interrupt=copy.cancel)
        copy.drop()


def _copy(server: Server, connection: Any, slice_: LogSlice) -> SlotCopy | None:
    """Return a copy of the slot, None when the server gives none. Raises: HistoryLostError."""
    try:
        with explained(server, slice_.slot, needed=slice_.start):
            copy = SlotCopy.make(connection, slice_.slot, start=slice_.start)
    except ClientError as error:
        if slice_.slot.temporary:
            refuse_without_copy(slice_.slot, error)
        if slice_.slot.temporary or sqlstate(error) not in _NO_COPY:
            raise
        if slice_.slot.name not in _told:
            _told.add(slice_.slot.name)
            log.warning(
                "replication slot %s: reading the log more slowly, because the server cannot copy the slot: %s",
                slice_.slot.name,
                server.mask(text_of(error)),
            )
        return None
    if copy is not None and copy.begin > slice_.start:
        explain(server, slice_.slot, needed=slice_.start)
    return copy


def _from_slot(server: Server, connection: Any, slice_: LogSlice, options: PostgresOptions) -> Generator[pa.Array]:
    """Yield what the slot itself has. Wait a short time for a slot that its last reader has not released yet."""
    query = f"SELECT data FROM {slice_.slot.peek(slice_.end, binary=slice_.binary)}"
    deadline = time.monotonic() + _IN_USE_LIMIT_S
    while True:
        cursor = connection.cursor()
        begun = False
        try:
            with explained(server, slice_.slot, needed=slice_.start):
                for batch in stream(cursor, query, batch_bytes=options.fetch_size):
                    begun = True
                    yield batch.column(0)
                cursor.execute(_MOVED.format(slot=slice_.slot.name, start=lsn_text(slice_.start)))
                if cursor.fetchone() is not None:
                    explain(server, slice_.slot, needed=slice_.start)
            return
        except ClientError as error:
            if sqlstate(error) != _IN_USE or begun or time.monotonic() >= deadline:
                raise
            time.sleep(0.05)
        finally:
            with suppress(*ClientError):
                cursor.close()
