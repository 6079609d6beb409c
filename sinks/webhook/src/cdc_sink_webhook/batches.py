"""From encoded rows to requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.messages import MessageBatch
from cdc_core.rows import RowBatch
from cdc_sink_webhook.bodies import Format, Values, compressed
from cdc_sink_webhook.request import Request, identity
from cdc_sink_webhook.sink_config import FlushConfig

__all__ = ["Batches"]

_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Neighbouring rows of one call that go into one request."""

    data: memoryview
    lengths: npt.NDArray[np.int64]
    times: bytes
    places: npt.NDArray[np.int64]
    keys: frozenset[int]


@dataclass(slots=True)
class _Open:
    """The batch of a topic that is not full yet."""

    pieces: list[_Piece] = field(default_factory=list)
    rows: int = 0
    nbytes: int = 0


class Batches:
    """Cuts the rows of each topic into requests, in order, as `Flush` of `webhook_sink_config` says."""

    def __init__(self, flush: FlushConfig, *, format: Format, compression: str, changefeed: str, limit: int) -> None:  # noqa: A002
        """No batch grows much beyond *limit* bytes, also where `Flush` sets no limit."""
        self._most_rows = 1 if flush.single else flush.Messages or _NO_LIMIT
        self._most_bytes = min(flush.Bytes or _NO_LIMIT, limit)
        self._format = format
        self._compression = compression
        self._changefeed = changefeed.encode()
        self._open: dict[str, _Open] = {}

    @property
    def waiting(self) -> bool:
        """Whether there are rows in a batch that is not full."""
        return any(batch.rows for batch in self._open.values())

    def add(self, rows: RowBatch, messages: MessageBatch, *, first: int) -> Iterator[Request]:
        """Yield each request that is full; *first* is the number of the first row since the last flush.

        Must be read to its end. What is not full waits for more rows, or for `rest`.
        """
        values = Values.of(messages.value, self._format.separator)
        keys = _key_hashes(rows, messages)
        times = _times(messages)
        places = np.arange(first, first + len(values), dtype=np.int64)
        batch = self._open.setdefault(messages.topic, _Open())
        start = 0
        while start < len(values):
            begin = values.start(start)
            room = self._most_bytes - batch.nbytes
            stop = min(start + self._most_rows - batch.rows, int(np.searchsorted(values.ends, begin + room)) + 1)
            full, stop = stop <= len(values), min(stop, len(values))
            end = int(values.ends[stop - 1])
            batch.pieces.append(
                _Piece(
                    data=values.data[begin:end],
                    lengths=np.diff(values.ends[start:stop], prepend=begin),
                    times=times[start:stop].tobytes(),
                    places=places[start:stop],
                    keys=frozenset(keys[start:stop]),
                )
            )
            batch.rows += stop - start
            batch.nbytes += end - begin
            if full:
                yield self._cut(messages.topic)
                batch = self._open[messages.topic]
            start = stop

    def rest(self) -> Iterator[Request]:
        """Yield a request for each topic that has rows waiting."""
        for topic in [topic for topic, batch in self._open.items() if batch.rows]:
            yield self._cut(topic)

    def forget(self) -> None:
        """Give up rows that wait."""
        self._open.clear()

    def mark(self, payload: bytes) -> Request:
        """Return the request that tells of a resolved mark."""
        nothing = np.empty(0, np.int64)
        return Request(
            id=identity(self._changefeed, b"resolved", payload),
            topic="",
            body=compressed(payload, self._compression),
            places=nothing,
            lengths=nothing,
            keys=frozenset(),
        )

    def halves(self, request: Request, data: bytes) -> list[Request]:
        """Return two requests with the rows of *request*, whose messages with separators are *data*."""
        middle = len(request.places) // 2
        border = int(request.lengths[:middle].sum())
        parts = ((slice(0, middle), data[:border]), (slice(middle, None), data[border:]))
        return [
            Request(
                id=identity(request.id.encode(), str(number).encode(), part),
                topic=request.topic,
                body=self._body(part, len(request.places[rows])),
                places=request.places[rows],
                lengths=request.lengths[rows],
                keys=request.keys,
            )
            for number, (rows, part) in enumerate(parts)
        ]

    def _cut(self, topic: str) -> Request:
        batch = self._open.pop(topic)
        self._open[topic] = _Open()
        pieces = batch.pieces
        data = b"".join(piece.data for piece in pieces)
        one = len(pieces) == 1
        return Request(
            id=identity(self._changefeed, topic.encode(), b"".join(piece.times for piece in pieces), data),
            topic=topic,
            body=self._body(data, batch.rows),
            places=pieces[0].places if one else np.concatenate([piece.places for piece in pieces]),
            lengths=pieces[0].lengths if one else np.concatenate([piece.lengths for piece in pieces]),
            keys=pieces[0].keys if one else frozenset().union(*(piece.keys for piece in pieces)),
        )

    def _body(self, data: bytes, count: int) -> bytes:
        return compressed(self._format.body(data, count), self._compression)


def _key_hashes(rows: RowBatch, messages: MessageBatch) -> list[int]:
    """Return a hash of each row's key. Equal keys of a table have equal hashes, in this process."""
    encoded = messages.key
    if encoded.null_count:  # a format without keys: the row's own, as text
        columns = [column.cast(pa.large_string()) for column in rows.column("key").flatten()]
        encoded = pc.binary_join_element_wise(*columns, "\0")
    return list(map(hash, encoded.to_pylist()))


def _times(messages: MessageBatch) -> npt.NDArray[np.int64]:
    updated = messages.updated
    wall, logical = (updated.field(name).to_numpy(zero_copy_only=False) for name in ("wall", "logical"))
    return np.stack([wall, logical], axis=1).astype(np.int64, copy=False)
