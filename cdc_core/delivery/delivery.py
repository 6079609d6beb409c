"""Delivery of one slice to a sink, row errors included: the bad rows are found, and all others go their way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from cdc_core.delivery.dead_letters import BLOCKED, BadRow
from cdc_core.errors import ContractError, EncodeError, PartialWriteError, RefusedRowsError
from cdc_core.rows import RowBatch
from cdc_core.sink import Flushed, Sink, SliceInfo
from cdc_core.telemetry.stages import ENCODE, SINK

__all__ = ["FLUSH_BYTES", "BadRows", "Delivery"]

FLUSH_BYTES = 32 * 1024 * 1024
"""Rows are kept between two flushes of a sink that may refuse some; when they take this much it is flushed."""

_REFUSED_PARTS = 8
"""Into how many parts refused rows are cut, to find the bad ones. The rows beside a single one are delivered again 1.14
times in all; with halves it would be twice."""


class BadRows(Protocol):
    """Decides what becomes of rows that are not delivered, and which rows must wait for them."""

    def put_aside(self, bad: BadRow) -> None:
        """Take a row that is not delivered. Raises: what ends the slice, when that may not be."""

    def blocked(self, rows: RowBatch) -> Sequence[int]:
        """Return the indices of *rows* that must wait because an earlier row of their key was put aside."""


class Delivery:
    """Gives the rows of one slice to *sink*, in order, and what it does not take to *bad_rows*.

    Once `flush` has returned, every row is durable at the sink or was put aside. Rows are given again only where the
    sink said that it has forgotten them. An error that is not about rows is raised as it is, and the slice is lost.
    *owner* is how messages name the sink. As long as no row is bad, a batch costs nothing that grows with its rows.
    """

    def __init__(self, sink: Sink, bad_rows: BadRows, *, owner: str) -> None:
        self._sink = sink
        self._bad_rows = bad_rows
        self._owner = owner
        self._flushed: list[Flushed] = []
        self._accused: RowBatch | None = None
        """The row that the encoder has named last as one that it cannot encode."""
        self._trusts_encoder = True
        self._suspect: RowBatch | None = None
        """The row that the sink has guessed last to be one that is refused."""
        self._trusts_guesses = True
        self._forget()

    def begin(self, slice_: SliceInfo) -> None:
        self._sink.begin(slice_)

    def emit(self, rows: RowBatch) -> None:
        """Give *rows* to the sink. Raises: ContractError; what `put_aside` raises; what the sink does."""
        self._work_off(rows)
        if self._given_bytes >= FLUSH_BYTES:
            self._work_off(None)

    def flush(self) -> Flushed:
        """Return when every row is durable or put aside, with all that became durable since `begin`."""
        self._work_off(None)
        parts, self._flushed = self._flushed, []
        return Flushed(
            messages=sum(part.messages for part in parts),
            bytes=sum(part.bytes for part in parts),
            files=sum(part.files for part in parts),
            delivered=tuple(entry for part in parts for entry in part.delivered),
        )

    def _work_off(self, first: RowBatch | None) -> None:
        """Emit *first*, or flush when it is None, and then whatever the errors about rows make necessary."""
        todo = deque([first])
        while todo:
            rows = todo.popleft()
            if rows is not None:
                rows = self._without_blocked(rows)
                if not len(rows):
                    continue
            try:
                if rows is None:
                    self._flushed.append(self._sink.flush())
                else:
                    self._sink.emit(rows)
            except EncodeError as error:
                if rows is None:
                    raise self._broken("an EncodeError may come out of emit() only, not out of flush()") from error
                todo.extendleft(reversed(self._narrow_encoding(rows, error)))
            except PartialWriteError as error:
                self._take(rows)
                self._put_named_aside(error)
                if rows is None:  # the others are delivered; another flush tells how much that was
                    self._forget()
                    todo.appendleft(None)
            except RefusedRowsError as error:
                self._take(rows)
                todo.extendleft(reversed(self._narrow_refusal(error)))
            else:
                if rows is None:
                    if len(self._given) == 1 and self._given[0] is self._suspect:  # it was none; see below
                        self._trusts_guesses = False
                    self._forget()
                else:
                    self._take(rows)
                    if rows is self._accused:  # or a wrong word would be followed for each row of a batch
                        self._trusts_encoder = False

    def _narrow_encoding(self, rows: RowBatch, error: EncodeError) -> Sequence[RowBatch]:
        """Return *rows*, of which the sink has taken none, in parts; none when only the bad row is left."""
        if len(rows) == 1:
            self._bad_rows.put_aside(BadRow(row=rows, stage=ENCODE, reason=str(error)))
            return []
        if error.row is None or not 0 <= error.row < len(rows) or not self._trusts_encoder:
            return _halves(rows)
        self._accused = rows.slice(error.row, 1)
        # All parts are at most half as long, so that many bad rows cost no more than without a hint.
        return [*_halves(rows.slice(0, error.row)), self._accused, *_halves(rows.slice(error.row + 1))]

    def _narrow_refusal(self, error: RefusedRowsError) -> Sequence[RowBatch | None]:
        """Return the rows that the sink forgot, in parts with a flush after each; none when only a bad one is left."""
        self._require_refusing(error)
        may_be_waiting = bool(self._waiting)  # then the sink may mean one of those, which it has been given as well
        guess = self._guess(error)
        suspects = self._taken_back()
        count = sum(map(len, suspects))
        if not count and not may_be_waiting:
            raise self._broken("RefusedRowsError is about rows since the last flush, and there was none") from error
        if count != 1 or may_be_waiting:
            return [step for part in self._parts(suspects, guess) for step in (*part, None)]
        self._bad_rows.put_aside(BadRow(row=suspects[0], stage=SINK, reason=str(error)))
        return []

    def _guess(self, error: RefusedRowsError) -> int | None:
        """Return the place, among the rows that will be taken back, of the one that *error* guesses."""
        count, aside = sum(map(len, self._given)), self._named | self._waiting
        row = error.row
        if row is None or not 0 <= row < count or row in aside or not self._trusts_guesses:
            return None
        return row - sum(other < row for other in aside)

    def _parts(self, suspects: Sequence[RowBatch], guess: int | None) -> Iterator[list[RowBatch]]:
        """Yield the rows of *suspects* in order, in parts of about one size; or *guess* alone, others in halves.

        No part but that has more than half of the rows, so that many bad ones cost no more with a guess.
        """
        if guess is None:
            yield from _parts(suspects, _REFUSED_PARTS)
            return
        (self._suspect,) = _cut(suspects, guess, guess + 1)
        yield from _parts(_cut(suspects, 0, guess), 2)
        yield [self._suspect]
        yield from _parts(_cut(suspects, guess + 1, sum(map(len, suspects))), 2)

    def _put_named_aside(self, error: PartialWriteError) -> None:
        """Put the rows aside that *error* lists, and later rows of their keys if these must wait."""
        self._require_refusing(error)
        count = sum(map(len, self._given))
        indices = [index for index, _ in error.failures]
        if not indices:
            raise self._broken("PartialWriteError must list the rows that are refused") from error
        for index in indices:
            if not isinstance(index, int) or not 0 <= index < count:
                raise self._broken(
                    f"PartialWriteError lists row {index}, but {count} rows were emitted since the last flush, counted"
                    " from 0"
                ) from error
        if len(set(indices)) < len(indices) or not self._named.isdisjoint(indices):
            twice = next(index for index in indices if index in self._named or indices.count(index) > 1)
            raise self._broken(f"PartialWriteError lists row {twice} twice") from error
        self._named.update(indices)
        for index, reason in sorted(error.failures):
            if index in self._waiting:
                continue
            rows, row = self._find(index)
            self._bad_rows.put_aside(BadRow(row=rows.slice(row, 1), stage=SINK, reason=str(reason)))
            self._hold_back_after(index)

    def _hold_back_after(self, bad: int) -> None:
        """Put aside later rows that must wait for row *bad*, although the sink may have delivered them already.

        They are to come again after it, so that the newest row of the key comes last.
        """
        offset = 0
        for rows in self._given:
            if offset + len(rows) > bad:
                waiting = {offset + row for row in self._bad_rows.blocked(rows)}
                for index in sorted(waiting - self._named - self._waiting):
                    if index > bad:
                        self._waiting.add(index)
                        self._put_blocked_aside(rows.slice(index - offset, 1))
            offset += len(rows)

    def _without_blocked(self, rows: RowBatch) -> RowBatch:
        """Return *rows* without those that must wait, which are put aside."""
        waiting = self._bad_rows.blocked(rows)
        if not len(waiting):
            return rows
        for row in waiting:
            self._put_blocked_aside(rows.slice(row, 1))
        return _without(rows, waiting)

    def _put_blocked_aside(self, row: RowBatch) -> None:
        self._bad_rows.put_aside(
            BadRow(row=row, stage=BLOCKED, reason="an earlier row of its key was put aside and not yet sent again")
        )

    def _find(self, index: int) -> tuple[RowBatch, int]:
        for rows in self._given:
            if index < len(rows):
                return rows, index
            index -= len(rows)
        raise IndexError(index)

    def _take(self, rows: RowBatch | None) -> None:
        """Remember that the sink has *rows*, if it may still refuse them."""
        if rows is not None and self._sink.refuses_rows:
            self._given.append(rows)
            self._given_bytes += rows.nbytes

    def _taken_back(self) -> list[RowBatch]:
        """Return the rows that the sink has been given since the last flush and that are not put aside."""
        aside, offset, left = self._named | self._waiting, 0, []
        for rows in self._given:
            mine = [index - offset for index in aside if offset <= index < offset + len(rows)]
            offset += len(rows)
            rest = _without(rows, mine) if mine else rows
            if len(rest):
                left.append(rest)
        self._forget()
        return left

    def _forget(self) -> None:
        self._given: list[RowBatch] = []
        """What the sink was given since the last flush."""
        self._given_bytes = 0
        self._named: set[int] = set()
        """Rows of these that it has named as bad."""
        self._waiting: set[int] = set()
        """Rows of these that were put aside to come after such a row."""

    def _require_refusing(self, error: Exception) -> None:
        if not self._sink.refuses_rows:
            raise self._broken(f"it has refuses_rows = False and raised {type(error).__name__}") from error

    def _broken(self, clause: str) -> ContractError:
        return ContractError(f"{self._owner} broke its contract: {clause}")


def _parts(batches: Sequence[RowBatch], parts: int) -> Iterator[list[RowBatch]]:
    """Yield the rows of *batches* in order, in up to *parts* parts of about one size."""
    size = -(-sum(map(len, batches)) // parts)
    part: list[RowBatch] = []
    room = size
    for rows in batches:
        offset = 0
        while offset < len(rows):
            taken = min(room, len(rows) - offset)
            part.append(rows.slice(offset, taken))
            offset, room = offset + taken, room - taken
            if not room:
                yield part
                part, room = [], size
    if part:
        yield part


def _cut(batches: Sequence[RowBatch], start: int, stop: int) -> list[RowBatch]:
    """Return the rows of *batches* from number *start* to *stop*, which is not among them."""
    found, offset = [], 0
    for rows in batches:
        first, last = max(start - offset, 0), min(stop - offset, len(rows))
        if first < last:
            found.append(rows.slice(first, last - first))
        offset += len(rows)
    return found


def _halves(rows: RowBatch) -> list[RowBatch]:
    return [part for [part] in _parts([rows], 2)]


def _without(rows: RowBatch, indices: Sequence[int]) -> RowBatch:
    keep = np.ones(len(rows), bool)
    keep[list(indices)] = False
    return RowBatch(schema=rows.schema, batch=rows.batch.filter(pa.array(keep)))
