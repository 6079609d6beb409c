"""Decodes pgoutput messages into row batches, column by column."""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, starmap

import numpy as np
import pyarrow as pa

from cdc_core import ContractError, Op, RowBatch, TableSchema, Timestamp
from cdc_rangefeed_postgres.changes import NONE, Changes, Tuples, read_changes
from cdc_rangefeed_postgres.fields import Ints, Mask, Messages
from cdc_rangefeed_postgres.joined_versions import folded_versions
from cdc_rangefeed_postgres.keys import Folded
from cdc_rangefeed_postgres.relations import RelationTracker
from cdc_rangefeed_postgres.scan_values import has_key_texts
from cdc_rangefeed_postgres.shared_keys import SharedKeys
from cdc_rangefeed_postgres.transaction_framing import Stamps, TransactionClock
from cdc_rangefeed_postgres.truncation import Truncate, note_tables
from cdc_rangefeed_postgres.types import TableVersion
from cdc_rangefeed_postgres.unchanged_toast import Lookup, completed, unavailable_of

_ROW_KINDS = np.frombuffer(b"IUD", np.uint8)
_TRUNCATE = ord("T")
_KNOWN_KINDS = np.frombuffer(b"IUDBCRTYOM", np.uint8)


class LogDecoder:
    """Decodes one slice of a slot's log, given in consecutive arrays of messages.

    *clock* says which transactions the slice has, and gives them `updated`, which the rows of one transaction share.
    When it spans several calls of `decode`, the rows of each later call get the next logical value.

    *versions* lists, for each relation id, the versions that its rows can have in this slice, in log order. *lookup*
    finds unchanged TOAST values that the log does not have, in the columns *lookup_in* of each table, or in all when
    that is None, and in all for rows that take the key of another row; without it, or when it finds none, they are
    unavailable.
    Tables that *versions* does not have are left out.

    Raises: RetryableRangefeedError when the log has a version that is not listed. TerminalRangefeedError for a
    TRUNCATE, unless *truncate* is "keep", for a value that has no Arrow value, for a log without a key or the old
    rows that *diff* needs, and as `SharedKeys.fold`.
    """

    def __init__(
        self,
        versions: Mapping[int, Sequence[TableVersion]],
        clock: TransactionClock,
        *,
        diff: bool = False,
        mvcc: bool = False,
        lookup: Lookup | None = None,
        lookup_in: Mapping[str, Container[str] | None] | None = None,
        truncate: Truncate = "stop",
    ) -> None:
        self._clock = clock
        self._tracker = RelationTracker(versions)
        self._shared = SharedKeys()
        self._diff = diff
        self._mvcc = mvcc
        self._lookup = lookup
        self._lookup_in = lookup_in
        self._truncate: Truncate = truncate

    @property
    def latest(self) -> Timestamp:
        """The timestamp of the last transaction; before the first one, that of all before the slice."""
        return self._clock.latest

    def lsn_of(self, updated: Timestamp) -> int | None:
        """Return the LSN of the commit of rows with *updated*, of the last call of `decode`; None if unknown."""
        return self._clock.lsn_of(updated)

    def decode(self, messages: pa.Array | pa.ChunkedArray, *, target_bytes: int = 2 << 20) -> Iterator[RowBatch]:
        """Yield the rows of *messages*, a binary array of whole pgoutput messages that follow those of the last call.

        The rows of one table and version come together, in batches of about *target_bytes*. The rows of a key come in
        order. The caller takes all batches before the next call. Values are looked up for each batch when it is taken.
        """
        log = Messages(messages)
        if not np.isin(log.kinds, _KNOWN_KINDS).all():
            raise ContractError("plugin 'postgres': the log has a message of an unknown kind")
        stamps = self._clock.stamp(log)
        self._shared.begin(int(stamps.transactions.max(initial=0)))
        kept = stamps.kept[stamps.transactions]
        if len(truncated := np.flatnonzero(kept & (log.kinds == _TRUNCATE))):
            self._note_truncated(log, truncated)
        rows = np.flatnonzero(kept & np.isin(log.kinds, _ROW_KINDS))
        for _, groups in groupby(self._tracker.groups(log, rows), key=lambda group: group[0].schema.name):
            parts = starmap(partial(read_changes, log, diff=self._diff), groups)
            for changes, folded in folded_versions(parts, stamps.transactions, self._shared):
                whole = self._batch(changes, folded, stamps)
                yield from self._parts(whole, changes.version, folded.replaced, target_bytes)

    def _parts(self, whole: RowBatch, version: TableVersion, replaced: Mask, target_bytes: int) -> Iterator[RowBatch]:
        """Yield *whole* in batches of about *target_bytes*, with the values that are to be looked up."""
        wanted, columns = replaced, None
        if self._lookup_in is not None:
            columns = self._lookup_in.get(version.schema.name.qualified, ())
        if columns is None:
            wanted = np.ones(len(whole), np.bool_)
        elif not has_key_texts(whole.schema):
            wanted = np.zeros(len(whole), np.bool_)
        count = max(1, round(whole.nbytes / target_bytes))
        step = max(1, -(-len(whole) // count))
        for start in range(0, len(whole), step):
            batch, here = whole.slice(start, step), wanted[start : start + step]
            if self._lookup is None or not (columns or here.any()):
                yield batch
            else:
                yield from completed(
                    batch,
                    version,
                    wanted=here,
                    columns=columns or (),
                    lookup=self._lookup,
                    target_bytes=target_bytes,
                )

    def _batch(self, changes: Changes, folded: Folded, stamps: Stamps) -> RowBatch:
        rows, ops = folded.rows, folded.ops
        schema = changes.version.schema
        transactions = stamps.transactions[changes.messages[rows]]
        wall, logical = stamps.wall[transactions], pa.array(stamps.logical[transactions].astype(np.int32))
        mvcc = None
        if self._mvcc:
            mvcc = RowBatch.timestamps(pa.array(stamps.commit[transactions]), pa.array(np.zeros(len(rows), np.int32)))
        key = [column if len(rows) == len(column) else column.take(pa.array(rows)) for column in changes.keys]
        return RowBatch.of(
            schema,
            op=pa.array(ops),
            updated=RowBatch.timestamps(pa.array(wall), logical),
            mvcc=mvcc,
            key=RowBatch.struct(schema.key_type, key),
            after=_images(schema, changes.new, np.where(ops == Op.DELETE, NONE, changes.after[rows])),
            before=_images(schema, changes.old, changes.before[folded.firsts]) if self._diff else None,
            unavailable=unavailable_of(changes, rows),
        )

    def _note_truncated(self, log: Messages, indices: Ints) -> None:
        for index in indices.tolist():
            (count,) = struct.unpack_from(">I", message := log.message(index), 1)
            relids = struct.unpack_from(f">{count}I", message, 6)
            if names := [self._tracker.name(relid) for relid in relids if self._tracker.watches(relid)]:
                note_tables(names, self._truncate)


def _images(schema: TableSchema, tuples: Tuples, which: Ints) -> pa.StructArray:
    """Return the tuples *which* as a column `after` or `before`; null for NONE."""
    columns = [tuples.column(index) for index in range(len(schema.columns))]
    none = which == NONE
    if np.array_equal(which, np.arange(len(tuples))):
        return RowBatch.struct(schema.after_type, columns)
    place = pa.array(which, mask=none)
    return RowBatch.struct(schema.after_type, [column.take(place) for column in columns], mask=pa.array(none))
