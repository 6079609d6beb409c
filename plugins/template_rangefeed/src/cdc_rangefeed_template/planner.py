"""The planner's part: decides where the next step ends."""

from collections.abc import Sequence

from cdc_core import (
    START_OVER,
    RangefeedContext,
    Slice,
    StepLimit,
    StepPlanner,
    TerminalRangefeedError,
    Timestamp,
    Token,
)

from cdc_rangefeed_template.journal import Journal, translated


class TemplatePlanner(StepPlanner):
    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self._journal = Journal(context.uri)

    def now(self) -> Timestamp:
        with translated():
            return Timestamp(self._journal.tip()[1] + 1)

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        with translated():
            return self._advance_scan(start, limit) if start["scan"] else self._advance_log(start, limit)

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        clock = Timestamp(start["clock"])
        return [Slice(lower=clock if start["scan"] else clock.next(), payload=[start, end])]

    def _advance_log(self, start: Token, limit: StepLimit) -> Token:
        end, now = self._journal.tip()
        offset, clock, rows = start["offset"], start["clock"], 0
        for place, line in self._journal.lines(offset, end):
            if rows >= limit.rows or offset - start["offset"] >= limit.bytes:
                return {**start, "offset": offset, "clock": clock}
            if line.get("drop") in self.context.tables:
                raise TerminalRangefeedError(f"table '{line['drop']}' was dropped. {START_OVER}")
            offset, clock, rows = place, line["at"], rows + len(line.get("writes", ()))
        if offset == start["offset"] and now - clock < self.context.options.idle_interval * 1e9:
            return start
        return {**start, "offset": offset, "clock": max(clock, now)}

    def _advance_scan(self, start: Token, limit: StepLimit) -> Token:
        rows = size = 0
        scan = start["scan"]
        for key, row in self._journal.rows_to_scan(start, self.context.tables):
            if rows >= limit.rows or size >= limit.bytes:
                return {**start, "scan": scan}
            rows, size, scan = rows + 1, size + len(str(row)), list(key)
        return {**start, "scan": None}
