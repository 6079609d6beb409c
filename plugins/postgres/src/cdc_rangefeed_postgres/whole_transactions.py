"""Cuts the log between transactions, wherever the fetches from the server end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_rangefeed_postgres.fields import Ints

__all__ = ["whole_transactions"]

_BEGIN, _COMMIT = ord("B"), ord("C")
_FINAL_LSN = np.arange(1, 9)
"""Its bytes in BEGIN."""
_SHAPES = np.frombuffer(b"RY", np.uint8)
"""Messages with the shape of a table or a type. The server sends them anew in each call and when its caches expire."""


def whole_transactions(fetches: Iterable[pa.BinaryArray], *, largest: int, start: int = 0) -> Iterator[pa.BinaryArray]:
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
            held.append(fetch.slice(done, stop - done))
            yield from _joined(held)
            held, done = [], stop
        held.append(fetch.slice(done))
        size, part = (0, 0) if kinds[-1] == _COMMIT else (int(places[-1] - begun[-1]), int(parts[-1]))
        if size // largest > part:  # the next message begins another part
            yield from _joined(held)
            held = []
    yield from _joined(held)


def _first_from(start: int, fetch: pa.BinaryArray, bounds: Ints, begins: Ints) -> int:
    """Return the first of *begins* whose transaction ends at or after *start*; the number of messages if none does."""
    data = np.frombuffer(fetch.buffers()[2], np.uint8)
    finals = np.ascontiguousarray(data[bounds[begins][:, None] + _FINAL_LSN]).view(">u8").ravel()
    found = begins[finals >= start]
    return int(found[0]) if len(found) else len(fetch)


def _joined(arrays: list[pa.BinaryArray]) -> Iterator[pa.BinaryArray]:
    filled = [array for array in arrays if len(array)]
    if filled:
        yield filled[0] if len(filled) == 1 else pa.concat_arrays(filled)


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
