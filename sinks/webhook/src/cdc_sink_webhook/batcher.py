"""Cuts encoded rows into requests."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import MessageBatch, RowBatch, TracedRow, each_event
from cdc_sink_webhook.bodies import Format, compressed, decompressed
from cdc_sink_webhook.event_headers import RequestHeaders, event_headers
from cdc_sink_webhook.request import Request, request_id
from cdc_sink_webhook.sink_config import FlushConfig

_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Consecutive rows of one call that go into one request."""

    data: memoryview | bytes
    lengths: npt.NDArray[np.int64]
    times: bytes
    row_numbers: npt.NDArray[np.int64]
    keys: frozenset[int]
    headers: RequestHeaders


@dataclass(slots=True)
class _OpenBatch:
    """The batch of a topic that is not full yet. Its first rows arrived at `since`, by the monotonic clock."""

    since: float
    pieces: list[_Piece] = field(default_factory=list)
    rows: int = 0
    nbytes: int = 0
    tables: set[str] = field(default_factory=set)
    """Full names of the tables of the rows: several only where the tables of a changefeed share a topic."""


class Batcher:
    """Cuts the rows of each topic into requests, in order, according to `Flush` of `webhook_sink_config`.

    `replay` names the replay that the next rows belong to; it is empty for ordinary rows. It becomes part of the id of
    each request: an endpoint that remembers its answers must not answer a replayed row with the old refusal.
    """

    def __init__(
        self,
        flush: FlushConfig,
        *,
        format: Format,  # noqa: A002
        compression: str,
        feed: str,
        limit: int,
    ) -> None:
        """No batch grows much beyond *limit* bytes, even where `Flush` sets no limit."""
        self.replay = ""
        self.traced: dict[int, TracedRow] = {}
        """Rows that someone traces, by their numbers since the last flush."""
        self._frequency_s = float(flush.Frequency)
        self._max_rows = 1 if flush.single else flush.Messages or _NO_LIMIT
        self._max_bytes = min(flush.Bytes or _NO_LIMIT, limit)
        self._format = format
        self._compression = compression
        self._feed = feed.encode()
        self._open: dict[str, _OpenBatch] = {}

    @property
    def due_at(self) -> float | None:
        """When the next unfinished batch must be sent, by the monotonic clock; None when there is no such batch."""
        if not self._frequency_s or not self._open:
            return None
        return min(batch.since for batch in self._open.values()) + self._frequency_s

    def add(self, rows: RowBatch, messages: MessageBatch, *, first: int) -> Iterator[Request]:
        """Yield each request that is full. *first* is the number of the first row since the last flush.

        The caller must exhaust the iterator. The rest waits for more rows or for `rest`.
        """
        values = self._format.values(messages.value)
        keys = _key_hashes(rows, messages)
        times = _times(messages)
        row_numbers = np.arange(first, first + len(values), dtype=np.int64)
        events = () if messages.attributes is None else [*each_event(messages.attributes, len(values))]
        start = 0
        while start < len(values):
            batch = self._open.setdefault(messages.topic, _OpenBatch(since=time.monotonic()))
            begin = values.start(start)
            room = self._max_bytes - batch.nbytes
            stop = min(start + self._max_rows - batch.rows, int(np.searchsorted(values.ends, begin + room)) + 1)
            full, stop = stop <= len(values), min(stop, len(values))
            end = int(values.ends[stop - 1])
            data = values.data[begin:end]
            batch.pieces.append(
                _Piece(
                    data=data if full else bytes(data),  # a waiting piece must not keep the whole buffer alive
                    lengths=values.lengths[start:stop],
                    times=times[start:stop].tobytes(),
                    row_numbers=row_numbers[start:stop],
                    keys=frozenset(keys[start:stop]),
                    headers=event_headers(events[start]) if events else (),  # then each row has its own request
                )
            )
            batch.tables.add(rows.schema.name.full)
            batch.rows += stop - start
            batch.nbytes += end - begin
            start = stop
            if full:
                yield self._cut(messages.topic)

    def due(self) -> Iterator[Request]:
        """Yield a request for each topic whose rows have waited for `Flush.Frequency`."""
        now = time.monotonic()
        for topic in [topic for topic, batch in self._open.items() if batch.since + self._frequency_s <= now]:
            yield self._cut(topic)

    def rest(self) -> Iterator[Request]:
        """Yield a request for each topic that has waiting rows."""
        for topic in list(self._open):
            yield self._cut(topic)

    def mark(self, payload: bytes, attributes: Mapping[str, str] | None = None) -> Request:
        """Return the request for a resolved mark, an event with *attributes* if there are any."""
        nothing = np.empty(0, np.int64)
        return Request(
            id=request_id(self._feed, b"resolved", payload),
            topic="",
            body=compressed(self._format.mark(payload), self._compression),
            row_numbers=nothing,
            lengths=nothing,
            keys=frozenset(),
            headers=event_headers(attributes or {}),
        )

    def halves(self, request: Request) -> tuple[Request, Request]:
        """Return two requests that together hold the rows of *request*, in order."""
        body = decompressed(request.body, self._compression)
        data = self._format.data(body, int(request.lengths.sum()))
        middle = len(request.row_numbers) // 2
        border = int(request.lengths[:middle].sum())
        return (
            self._part(request, slice(0, middle), data[:border], name=b"first half"),
            self._part(request, slice(middle, None), data[border:], name=b"second half"),
        )

    def _part(self, request: Request, rows: slice, data: bytes, *, name: bytes) -> Request:
        row_numbers = request.row_numbers[rows]
        return Request(
            id=request_id(request.id.encode(), name),
            traced={number: request.traced[number] for number in request.traced if number in row_numbers},
            topic=request.topic,
            body=compressed(self._format.body([data], len(row_numbers)), self._compression),
            row_numbers=row_numbers,
            lengths=request.lengths[rows],
            keys=request.keys,
        )

    def _cut(self, topic: str) -> Request:
        batch = self._open.pop(topic)
        pieces = batch.pieces
        one = len(pieces) == 1
        body = self._format.body([piece.data for piece in pieces], batch.rows)
        times = b"".join(piece.times for piece in pieces)
        tables = "\0".join(sorted(batch.tables)).encode()
        headers = pieces[0].headers
        row_numbers = pieces[0].row_numbers if one else np.concatenate([piece.row_numbers for piece in pieces])
        event = [b"".join(name + value for name, value in headers)] if headers else []
        return Request(
            id=request_id(self._feed, topic.encode(), tables, times, body, self.replay.encode(), *event),
            topic=topic,
            body=compressed(body, self._compression),
            row_numbers=row_numbers,
            lengths=pieces[0].lengths if one else np.concatenate([piece.lengths for piece in pieces]),
            keys=pieces[0].keys if one else frozenset().union(*(piece.keys for piece in pieces)),
            headers=headers,
            traced=self._traced_among(row_numbers) if self.traced else {},
        )

    def _traced_among(self, row_numbers: npt.NDArray[np.int64]) -> dict[int, TracedRow]:
        return {number: self.traced.pop(number) for number in list(self.traced) if number in row_numbers}


def _key_hashes(rows: RowBatch, messages: MessageBatch) -> list[int]:
    """Return a hash of each row's key. Equal keys of a table have equal hashes in this process."""
    encoded = messages.key
    if encoded.null_count:  # a format without keys: use the row's own key, as text
        columns = [_as_bytes(column) for column in rows.column("key").flatten()]
        encoded = pc.binary_join_element_wise(*columns, pa.scalar(b"\0", pa.large_binary()))
    return list(map(hash, encoded.to_pylist()))


def _as_bytes(column: pa.Array) -> pa.Array:
    is_binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    return (column if is_binary else column.cast(pa.large_string())).cast(pa.large_binary())


def _times(messages: MessageBatch) -> npt.NDArray[np.int64]:
    updated = messages.updated
    wall, logical = (updated.field(name).to_numpy(zero_copy_only=False) for name in ("wall", "logical"))
    return np.stack([wall, logical], axis=1).astype(np.int64, copy=False)
