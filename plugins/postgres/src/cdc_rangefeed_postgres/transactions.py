"""The transactions of a slice of the log, and their timestamps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdc_core import Timestamp
from cdc_rangefeed_postgres.datetime_limits import TIMESTAMP_EPOCH_US
from cdc_rangefeed_postgres.fields import Ints, Mask, Messages

__all__ = ["Stamps", "TransactionClock"]

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
    """Assigns strictly rising timestamps to transactions in log order, by the rules in `LogDecoder`."""

    def __init__(self, *, start_lsn: int, end_lsn: int, after: Timestamp, until: Timestamp | None) -> None:
        if until is not None and until.wall - _BELOW_UNTIL_NS < after.wall:
            raise ValueError(f"a slice until {until} cannot have rows after {after}")
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
