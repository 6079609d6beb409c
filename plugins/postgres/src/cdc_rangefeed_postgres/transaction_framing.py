"""The transactions of a slice of the log: where they begin and end, and their timestamps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_core import Timestamp
from cdc_rangefeed_postgres.datetimes import TIMESTAMP_EPOCH_US
from cdc_rangefeed_postgres.fields import Ints, Mask, Messages

_BEGIN, _COMMIT = ord("B"), ord("C")
_BELOW_UNTIL_NS = 999


@dataclass(frozen=True, slots=True)
class Stamps:
    """The transactions of one array of messages."""

    transactions: Ints
    """For each message, the index of its transaction."""
    kept: Mask
    """For each transaction, whether it belongs to the slice. The other fields are only valid where this is true."""
    wall: Ints
    logical: Ints
    commit: Ints
    """Wall of the commit time in the log, at most `wall`."""


class TransactionClock:
    """Gives the transactions of a slice `updated`, in log order.

    The slice has those with `start_lsn <= final_lsn < end_lsn` (final_lsn in their BEGIN). `updated` is the commit
    time, changed where necessary: it strictly rises in log order, is greater than *after*, and has a wall of at most
    `until.wall - 999`. So *until* must be at least a microsecond after *after*.
    """

    def __init__(self, *, start_lsn: int, end_lsn: int, after: Timestamp, until: Timestamp | None = None) -> None:
        if until is not None and until.wall - _BELOW_UNTIL_NS < after.wall:
            raise ValueError(
                f"a slice must end at least 1 us after the timestamp it follows: until is {until}, after is {after}"
            )
        self._lsns = (start_lsn, end_lsn)
        self._last_wall = np.iinfo(np.int64).max if until is None else until.wall - _BELOW_UNTIL_NS
        self._open: tuple[int, bool] | None = None
        """The transaction that continues after the last array: its commit wall, and whether it belongs to the slice."""
        self.latest = after
        self._stamped: tuple[Ints, Ints, Ints] | None = None
        """Of the last call: LSN, wall and logical of each transaction."""
        self._open_lsn = 0
        """That of the last transaction so far, which may continue."""

    def lsn_of(self, updated: Timestamp) -> int | None:
        """Return the LSN of the transaction that the last call gave *updated*; None when it gave that to none."""
        if self._stamped is None:
            return None
        lsns, wall, logical = self._stamped
        found = np.flatnonzero((wall == updated.wall) & (logical == updated.logical))
        return int(lsns[found[-1]]) if len(found) and lsns[found[-1]] else None

    def stamp(self, messages: Messages) -> Stamps:
        """Return the transactions of *messages*, which follow those of the last call."""
        begins = np.flatnonzero(messages.kinds == _BEGIN)
        heads = messages.starts[begins]
        lsns = messages.numbers(">i8", heads + 1)
        open_wall, open_kept = self._open or (0, False)
        continues = open_kept and len(messages) > 0 and (len(begins) == 0 or begins[0] > 0)
        first, end = self._lsns
        commit = np.concatenate([[open_wall], (messages.numbers(">i8", heads + 9) + TIMESTAMP_EPOCH_US) * 1000])
        kept = np.concatenate([[continues], (lsns >= first) & (lsns < end)])
        wall, logical = np.zeros(len(kept), np.int64), np.zeros(len(kept), np.int64)
        wall[kept], logical[kept] = self._rise(np.minimum(commit[kept], self._last_wall))
        self._stamped = np.concatenate([[self._open_lsn], lsns]), wall, logical
        self._open_lsn = int(self._stamped[0][-1])
        commits = np.flatnonzero(messages.kinds == _COMMIT)
        if len(commits) and (len(begins) == 0 or commits[-1] > begins[-1]):
            self._open = None
        elif len(begins):
            self._open = int(commit[-1]), bool(kept[-1])
        transactions = np.cumsum(messages.kinds == _BEGIN)
        return Stamps(transactions, kept, wall, logical, np.minimum(commit, wall))

    def _rise(self, walls: Ints) -> tuple[Ints, Ints]:
        """Return strictly rising timestamps that are greater than the latest one, with a wall of at least *walls*."""
        if len(walls) == 0:
            return walls, walls
        latest = self.latest
        risen = np.maximum.accumulate(np.concatenate([[latest.wall], walls]))
        order = np.arange(1, len(risen))
        begun = np.maximum.accumulate(np.where(risen[1:] > risen[:-1], order, 0))  # where equal walls begin
        logical = np.where(begun > 0, order - begun, latest.logical + order)
        self.latest = Timestamp(int(risen[-1]), int(logical[-1]))
        return risen[1:], logical


_FINAL_LSN = np.arange(1, 9)
"""Its bytes in BEGIN."""
_SHAPES = np.frombuffer(b"RY", np.uint8)
"""Messages with the shape of a table or a type. The server sends them again in each call and when its caches expire."""


def whole_transactions(fetches: Iterable[pa.BinaryArray], *, largest: int, start: int = 0) -> Iterator[pa.ChunkedArray]:
    """Yield the messages of *fetches*, in order, in arrays that end with a transaction.

    Transactions whose final LSN is below *start* are in arrays of their own. From there on, an array ends with the
    first transaction that completes another *largest* bytes, and a transaction of more than *largest* bytes is cut
    after about every *largest* bytes. So the cuts depend on nothing but the log and *start*: what is read again, from
    another place or in other fetches, is cut at the same messages. Holds back about twice *largest* bytes and one
    message.
    """
    held: list[pa.BinaryArray] = []
    size, part = 0, 0  # of the transaction that is not complete: its bytes so far, and the number of its last part
    total, level = 0, 0  # since *start*: the bytes so far, and how many times *largest* there were at the last end
    counting = False
    for fetch in fetches:
        if len(fetch) == 0:
            continue
        kinds, places, bounds = _kinds_and_places(fetch)
        is_begin, ends = kinds == _BEGIN, np.flatnonzero(kinds == _COMMIT)
        begun = np.maximum.accumulate(np.where(is_begin, places[:-1], -size))
        since_begin = places[:-1] - begun
        parts = since_begin // largest
        stops = np.flatnonzero((np.diff(parts, prepend=part) > 0) & ~is_begin)
        first = 0 if counting else _first_from(start, fetch, bounds, np.flatnonzero(is_begin))
        if not counting:
            stops = np.union1d(stops, ends[ends < first][-1:] + 1)
        if first < len(kinds):
            counting = True
            sums = total + places[1:] - places[first]
            later = ends[ends >= first]
            levels = sums[later] // largest
            stops = np.union1d(stops, later[np.diff(levels, prepend=level) > 0] + 1)
            total, level = int(sums[-1]), int(levels[-1]) if len(levels) else level
        done = 0
        for stop in stops.tolist():
            if stop > done:
                held.append(fetch.slice(done, stop - done))
            if held:
                yield pa.chunked_array(held)
            held, done = [], stop
        if done < len(fetch):
            held.append(fetch.slice(done))
        size, part = (0, 0) if kinds[-1] == _COMMIT else (int(places[-1] - begun[-1]), int(parts[-1]))
        if held and size // largest > part:  # the next message begins another part
            yield pa.chunked_array(held)
            held = []
    if held:
        yield pa.chunked_array(held)


def _first_from(start: int, fetch: pa.BinaryArray, bounds: Ints, begins: Ints) -> int:
    """Return the first of *begins* whose transaction ends at or after *start*; the number of messages if none does."""
    data = np.frombuffer(fetch.buffers()[2], np.uint8)
    finals = np.ascontiguousarray(data[bounds[begins][:, None] + _FINAL_LSN]).view(">u8").ravel()
    found = begins[finals >= start]
    return int(found[0]) if len(found) else len(fetch)


def _kinds_and_places(fetch: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], Ints, Ints]:
    """Return the first byte of each message, how many bytes are before it, and where it is in the buffer.

    At the end of the latter two, how many bytes there are. The shapes of tables count nothing.
    """
    _, offsets, data = fetch.buffers()
    width = np.int64 if pa.types.is_large_binary(fetch.type) else np.int32
    bounds = np.frombuffer(offsets, width)[fetch.offset : fetch.offset + len(fetch) + 1].astype(np.int64)
    kinds = np.frombuffer(data, np.uint8)[bounds[:-1]]
    sizes = np.where(np.isin(kinds, _SHAPES), 0, np.diff(bounds))
    return kinds, np.concatenate([[0], np.cumsum(sizes)]), bounds
