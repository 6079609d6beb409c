"""Cuts the log between transactions, wherever the fetches from the server end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_rangefeed_postgres.fields import Ints

__all__ = ["whole_transactions"]

_BEGIN, _COMMIT = ord("B"), ord("C")
_SHAPES = np.frombuffer(b"RY", np.uint8)
"""Messages with the shape of a table or a type. The server sends them anew in each call and when its caches expire."""


def whole_transactions(fetches: Iterable[pa.BinaryArray], *, largest: int) -> Iterator[pa.BinaryArray]:
    """Yield the messages of *fetches*, in order, in arrays that end with a transaction.

    A transaction of more than *largest* bytes is cut after about every *largest* bytes. These cuts depend on nothing
    but the transaction: a log that is read again, from another place, is cut at the same messages. Holds back at most
    *largest* bytes and one message.
    """
    held: list[pa.BinaryArray] = []
    size, part = 0, 0  # of the transaction that is not complete: its bytes so far, and the number of its last part
    for fetch in fetches:
        if len(fetch) == 0:
            continue
        kinds, places = _kinds_and_places(fetch)
        is_begin = kinds == _BEGIN
        begun = np.maximum.accumulate(np.where(is_begin, places[:-1], -size))
        since_begin = places[:-1] - begun
        parts = since_begin // largest
        cuts = np.flatnonzero((np.diff(parts, prepend=part) > 0) & ~is_begin)
        last_end = np.flatnonzero(kinds == _COMMIT)[-1:] + 1
        start = 0
        for stop in np.union1d(cuts, last_end).tolist():
            held.append(fetch.slice(start, stop - start))
            yield from _joined(held)
            held, start = [], stop
        held.append(fetch.slice(start))
        size, part = (0, 0) if kinds[-1] == _COMMIT else (int(places[-1] - begun[-1]), int(parts[-1]))
        if size // largest > part:  # the next message begins another part
            yield from _joined(held)
            held = []
    yield from _joined(held)


def _joined(arrays: list[pa.BinaryArray]) -> Iterator[pa.BinaryArray]:
    filled = [array for array in arrays if len(array)]
    if filled:
        yield filled[0] if len(filled) == 1 else pa.concat_arrays(filled)


def _kinds_and_places(fetch: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Return the first byte of each message, and how many bytes are before it; at the end, how many there are.

    The shapes of tables count nothing.
    """
    _, offsets, data = fetch.buffers()
    width = np.int64 if pa.types.is_large_binary(fetch.type) else np.int32
    bounds = np.frombuffer(offsets, width)[fetch.offset : fetch.offset + len(fetch) + 1].astype(np.int64)
    kinds = np.frombuffer(data, np.uint8)[bounds[:-1]]
    sizes = np.where(np.isin(kinds, _SHAPES), 0, np.diff(bounds))
    return kinds, np.concatenate([[0], np.cumsum(sizes)])
