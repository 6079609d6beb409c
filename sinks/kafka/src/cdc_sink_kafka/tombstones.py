"""Tombstones behind the messages of deleted rows, for compacted topics; and where other messages are then."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import MessageBatch, Op, RowBatch, TracedRow
from cdc_sink_kafka.event_headers import Header, is_of_event


def deleted_rows(rows: RowBatch, batch: MessageBatch) -> pa.BooleanArray:
    """Return which messages of *batch*, made from *rows*, are of deleted rows and no tombstones themselves."""
    deleted = pc.equal(rows.column("op"), pa.scalar(int(Op.DELETE), pa.uint8()))
    return pc.and_(deleted, pc.and_(batch.value.is_valid(), batch.key.is_valid()))


def with_tombstones(
    batch: MessageBatch, headers: Sequence[list[Header]] | None, deleted: pa.BooleanArray, *, of_events: bool
) -> tuple[MessageBatch, list[list[Header]] | None]:
    """Return *batch* and *headers* with a message without a value directly behind each of those that are *deleted*.

    It has the key and the headers of the message before it, and so its partition. Where messages are those *of_events*,
    it has only the headers that do not make it one.
    """
    times = 1 + np.asarray(deleted.to_numpy(zero_copy_only=False), np.int64)
    places = np.repeat(np.arange(len(batch)), times)
    second = np.concatenate(([False], places[1:] == places[:-1]))
    taken = pa.array(np.where(second, 0, places), mask=second)
    expanded = MessageBatch(
        topic=batch.topic,
        key=batch.key.take(pa.array(places)),
        value=batch.value.take(taken),
        updated=batch.updated.take(pa.array(places)),
    )
    if headers is None:
        return expanded, None
    repeated = [headers[place] for place in places.tolist()]
    if of_events:
        for place in np.flatnonzero(second).tolist():
            repeated[place] = [header for header in repeated[place] if not is_of_event(header[0])]
    return expanded, repeated


def traced_messages(
    traced: Mapping[int, TracedRow], *, count: int, unsendable: Collection[int], deleted: pa.BooleanArray | None
) -> Mapping[int, TracedRow]:
    """Return the rows of *traced*, by their indices among *count* rows, by the place of their messages.

    There is none of a row at a place that is *unsendable*. Behind that of a row which is *deleted*, by places among the
    sendable ones, there is a tombstone.
    """
    if not traced:
        return traced
    kept = np.setdiff1d(np.arange(count), np.fromiter(unsendable, np.int64))
    times = np.ones(len(kept), np.int64)
    if deleted is not None:
        times += np.asarray(deleted.to_numpy(zero_copy_only=False), np.int64)
    places = np.cumsum(times) - times
    return {int(place): traced[row] for place, row in zip(places, kept.tolist(), strict=True) if row in traced}
