"""The part of a source's history that a changefeed emits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from cdc_core.config.changefeed import ChangefeedOptions
from cdc_core.errors import TerminalError
from cdc_core.rows import Op, RowBatch
from cdc_core.slice_reader import SpanMark
from cdc_core.timestamp import Timestamp

__all__ = ["EVERYTHING", "TimeRange"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """Everything up to `end`, without an end when None. Picklable."""

    end: Timestamp | None = None

    @classmethod
    def of(cls, options: ChangefeedOptions) -> Self:
        return cls(end=options.end)

    def over(self, resolved: Timestamp) -> bool:
        """Return whether nothing is left to do once everything up to *resolved* is delivered."""
        return self.end is not None and resolved >= self.end

    def of_rows(self, rows: RowBatch, *, latest: Timestamp) -> RowBatch:
        """Return the part of *rows* that is in this range: *rows* itself when all are. None is later than *latest*.

        Raises: TerminalError for a scanned row after the end, which does not say what the table held at the end.
        """
        if self.end is None or latest <= self.end:
            return rows
        late = rows.later_than(self.end)
        op = rows.column("op").to_numpy()
        if (op[late] == Op.SCAN).any():
            raise TerminalError(
                f"table {rows.schema.name} was scanned at {latest}, which is later than end_time, {self.end}: what it"
                " held then can no longer be read. Run the changefeed under another name, with an end_time by which the"
                " scan is complete"
            )
        return RowBatch(schema=rows.schema, batch=rows.batch.filter(pa.array(~late)))

    def of_mark(self, mark: SpanMark) -> SpanMark:
        """Return *mark*, at the end when it is later."""
        return mark if self.end is None or mark.timestamp <= self.end else replace(mark, timestamp=self.end)


EVERYTHING = TimeRange()
