"""Delivery of one slice to a sink: bad rows are found, and all others are delivered."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from cdc_core.delivery.dead_letters import BLOCKED, BadRow
from cdc_core.delivery.search import BadRowSearch
from cdc_core.errors import ContractError, EncodeError, RefusedRowsError
from cdc_core.rows import RowBatch
from cdc_core.sink import Flushed, RefusedRow, Sink, SliceInfo
from cdc_core.telemetry.metrics import FLUSH_SECONDS
from cdc_core.telemetry.stages import ENCODE, SINK
from cdc_core.telemetry.tally import Tally

FLUSH_BYTES = 32 * 1024 * 1024
"""A sink that may refuse rows is flushed whenever the rows since the last flush take this much memory."""

_ENCODE_PARTS = 2
_REFUSED_PARTS = 8
"""Into how many parts refused rows are divided. The rows beside a single bad one are delivered again 1.14 times in all;
with halves it would be twice."""


class BadRows(Protocol):
    """Decides what becomes of rows that are refused, and which rows must wait for them."""

    def add(self, bad: BadRow) -> None:
        """Take a row that is not delivered. Raises: what ends the slice, if the user wants no dead letters."""

    def blocked(self, rows: RowBatch) -> Sequence[int]:
        """Return the indices of *rows* that must wait because an earlier row of their key was refused."""


class Delivery:
    """Passes the rows of one slice to *sink*, in order, and the refused ones to *bad_rows*.

    When `flush` returns, every row is durable at the sink or was added to *bad_rows*. Rows are passed again only where
    the sink said that it has forgotten them. An error that is not about rows is raised unchanged, and the slice is
    lost. *refuses_rows* is what the sink's registration says; *owner* is how messages name the sink. Flushes
    are counted in *tally*. As long as no row is bad, a batch costs nothing that grows with its rows.
    """

    def __init__(
        self, sink: Sink, bad_rows: BadRows, *, owner: str, refuses_rows: bool, tally: Tally | None = None
    ) -> None:
        self._sink = sink
        self.tally = Tally() if tally is None else tally
        self._bad_rows = bad_rows
        self._owner = owner
        self._refuses_rows = refuses_rows
        self._flushed: list[Flushed] = []
        self._encode_search: BadRowSearch[RowBatch] = BadRowSearch(parts=_ENCODE_PARTS)
        self._refusal_search: BadRowSearch[RowBatch] = BadRowSearch(parts=_REFUSED_PARTS)
        self._given: list[RowBatch] = []
        """What the sink was given since the last flush."""
        self._given_bytes = 0

    def begin(self, slice_: SliceInfo) -> None:
        self._sink.begin(slice_)

    def emit(self, rows: RowBatch) -> None:
        """Pass *rows* to the sink. Raises: ContractError; whatever *bad_rows* or the sink raises."""
        self._work_off(rows)
        if self._given_bytes >= FLUSH_BYTES:
            self._work_off(None)

    def flush(self) -> Flushed:
        """Return when every row is durable or refused, with all that became durable since `begin`."""
        self._work_off(None)
        parts, self._flushed = self._flushed, []
        return Flushed(
            messages=sum(part.messages for part in parts),
            bytes=sum(part.bytes for part in parts),
            files=sum(part.files for part in parts),
            delivered=tuple(entry for part in parts for entry in part.delivered),
        )

    def _work_off(self, first: RowBatch | None) -> None:
        """Emit *first*, or flush when it is None, and then do whatever refused rows make necessary."""
        todo: deque[RowBatch | None] = deque([first])
        while todo:
            rows = todo.popleft()
            try:
                if rows is None:
                    self._flush()
                    continue
                if len(waiting := self._bad_rows.blocked(rows)):
                    rows = self._without_blocked(rows, waiting)
                if len(rows):
                    self._sink.emit(rows)
                    self._keep(rows)
                    self._encode_search.accepted(rows)
            except EncodeError as error:
                if rows is None:
                    raise self._broken("only emit() may raise an EncodeError, not flush()") from error
                todo.extendleft(reversed(self._narrow_encoding(rows, error)))
            except RefusedRowsError as error:
                if rows is not None:
                    self._keep(rows)
                todo.extendleft(reversed(self._narrow_refusal(error)))

    def _flush(self) -> None:
        begun = time.monotonic()
        flushed = self._sink.flush()
        self.tally.observe(FLUSH_SECONDS, time.monotonic() - begun)
        if not isinstance(flushed, Flushed):  # the author forgot to return it
            raise self._broken(f"flush() returned {type(flushed).__name__}, not a Flushed")
        self._flushed.append(flushed)
        given = self._taken_back()
        if flushed.refused:
            self._add_refused(given, flushed.refused)
        elif len(given) == 1:
            self._refusal_search.accepted(given[0])

    def _narrow_encoding(self, rows: RowBatch, error: EncodeError) -> Sequence[RowBatch]:
        """Return *rows*, of which the sink has taken none, in parts; none when only the bad row is left."""
        if len(rows) == 1:
            self._bad_rows.add(BadRow(row=rows, stage=ENCODE, reason=str(error)))
            return []
        return [batch for part in self._encode_search.narrow([rows], error.row) for batch in part]

    def _narrow_refusal(self, error: RefusedRowsError) -> Sequence[RowBatch | None]:
        """Return the rows that the sink forgot, in parts with a flush after each; none when only a bad one is left."""
        self._require_refusing("raised RefusedRowsError", error)
        suspects = self._taken_back()
        count = sum(map(len, suspects))
        if not count:
            raise self._broken(
                "RefusedRowsError refuses rows emitted since the last flush, but no rows were emitted"
            ) from error
        if count > 1:
            return [step for part in self._refusal_search.narrow(suspects, error.row) for step in (*part, None)]
        self._bad_rows.add(BadRow(row=suspects[0], stage=SINK, reason=str(error)))
        return []

    def _add_refused(self, given: Sequence[RowBatch], refused: Sequence[RefusedRow]) -> None:
        """Add the rows of *given* that the sink refused, and later rows of their keys if these must wait.

        The sink has delivered the later ones already. They are to come again after the refused row, so that the newest
        row of the key comes last.
        """
        self._require_refusing("returned refused rows")
        self._check_refused(sum(map(len, given)), refused)
        reasons = {row.index: row.reason for row in refused}
        offset = 0
        held: set[int] = set()
        for rows in given:
            mine = sorted(index - offset for index in reasons if offset <= index < offset + len(rows))
            for row in mine:
                self._bad_rows.add(BadRow(row=rows.slice(row, 1), stage=SINK, reason=reasons[row + offset]))
                held |= self._hold_back(given, after=row + offset, settled=held | reasons.keys())
            offset += len(rows)

    def _hold_back(self, given: Sequence[RowBatch], *, after: int, settled: set[int]) -> set[int]:
        """Add the rows of *given* behind row *after* that are blocked now and not *settled*; return their indices."""
        held: set[int] = set()
        offset = 0
        for rows in given:
            if offset + len(rows) > after:
                for row in sorted(self._bad_rows.blocked(rows)):
                    if (index := offset + row) > after and index not in settled:
                        held.add(index)
                        self._add_blocked(rows.slice(row, 1))
            offset += len(rows)
        return held

    def _without_blocked(self, rows: RowBatch, waiting: Sequence[int]) -> RowBatch:
        """Return *rows* without those *waiting*, which become dead letters."""
        for row in waiting:
            self._add_blocked(rows.slice(row, 1))
        keep = np.ones(len(rows), bool)
        keep[list(waiting)] = False
        return RowBatch(schema=rows.schema, batch=rows.batch.filter(pa.array(keep)))

    def _add_blocked(self, row: RowBatch) -> None:
        reason = "an earlier row of its key was refused and is still among the dead letters"
        self._bad_rows.add(BadRow(row=row, stage=BLOCKED, reason=reason))

    def _keep(self, rows: RowBatch) -> None:
        """Remember that the sink has *rows*, if it may still refuse them."""
        if self._refuses_rows:
            self._given.append(rows)
            self._given_bytes += rows.nbytes

    def _taken_back(self) -> list[RowBatch]:
        """Return the rows that the sink was given since the last flush, and begin to count again."""
        given, self._given, self._given_bytes = self._given, [], 0
        return given

    def _check_refused(self, count: int, refused: Sequence[RefusedRow]) -> None:
        indices = [row.index for row in refused]
        for index in indices:
            if not isinstance(index, int) or not 0 <= index < count:
                raise self._broken(
                    f"Flushed.refused lists row {index}, but {count} rows were emitted since the last flush, counted"
                    " from 0"
                )
        twice = min((index for index, times in Counter(indices).items() if times > 1), default=None)
        if twice is not None:
            raise self._broken(f"Flushed.refused lists row {twice} twice")

    def _require_refusing(self, what: str, error: Exception | None = None) -> None:
        if not self._refuses_rows:
            raise self._broken(f"its registration says refuses_rows=False, and it {what}") from error

    def _broken(self, clause: str) -> ContractError:
        return ContractError(f"{self._owner} broke its contract: {clause}")
