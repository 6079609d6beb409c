"""The part of a source's history that a changefeed emits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa

from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.errors import START_OVER, TerminalError
from cdc_core.rows import Op, RowBatch
from cdc_core.slice_reader import SpanMark
from cdc_core.timestamp import Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """Everything later than `after`, up to `end`. None stands for no limit. Picklable.

    Scanned rows are not changes: those that are wanted are as of `after` or later.
    """

    after: Timestamp | None = None
    end: Timestamp | None = None

    @classmethod
    def of(cls, options: ChangefeedOptions) -> Self:
        return cls(after=options.after, end=options.end)

    def over(self, resolved: Timestamp) -> bool:
        """Return whether nothing is left to do once everything up to *resolved* is delivered."""
        return self.end is not None and resolved >= self.end

    def beginning_at(self, lower: Timestamp) -> TimeRange:
        """Return this range for rows of which none is below *lower*."""
        return self if self.after is None or lower <= self.after else replace(self, after=None)

    def of_rows(self, rows: RowBatch, *, latest: Timestamp) -> RowBatch:
        """Return the part of *rows* that is in this range: *rows* itself when all are. None is later than *latest*.

        Raises: TerminalError for a scanned row after the end, which does not say what the table held at the end.
        """
        if self.after is not None and rows.row_below(self.after.next()) is not None:
            rows = _filtered(rows, rows.later_than(self.after) | _scanned(rows))
        if self.end is None or latest <= self.end:
            return rows
        late = rows.later_than(self.end)
        if (late & _scanned(rows)).any():
            raise TerminalError(
                f"table {rows.schema.name} was scanned at {latest}, which is later than end_time, {self.end}: its"
                f" contents at that time can no longer be read. {START_OVER}. Choose an end_time that leaves enough"
                f" time for the scan. If the table was added or is read again, `cdc alter FILE NAME --drop"
                f" {rows.schema.name}` leaves it out"
            )
        return _filtered(rows, ~late)

    def of_mark(self, mark: SpanMark) -> SpanMark:
        """Return *mark*, at the end when it is later. Before this range begins, nothing is resolved."""
        if self.end is not None and mark.timestamp > self.end:
            return replace(mark, timestamp=self.end)
        return replace(mark, resolved=False) if self.after is not None and mark.timestamp < self.after else mark


def _scanned(rows: RowBatch) -> np.ndarray:
    scanned: np.ndarray = rows.column("op").to_numpy() == Op.SCAN
    return scanned


def _filtered(rows: RowBatch, keep: np.ndarray) -> RowBatch:
    return RowBatch(schema=rows.schema, batch=rows.batch.filter(pa.array(keep)))


EVERYTHING = TimeRange()
