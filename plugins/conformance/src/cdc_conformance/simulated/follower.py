"""Follows a simulated database as the engine does, step by step in one process: for tests without Spark."""

from __future__ import annotations

import pickle
from typing import Any

from cdc_conformance.rangefeeds.driver import Feed, Plan, Reading, Step
from cdc_conformance.simulated.database import SimulatedDatabase
from cdc_conformance.simulated.planner import SimulatedPlanner
from cdc_conformance.simulated.rangefeed import SimulatedHistory, SimulatedRangefeed
from cdc_conformance.simulated.reader import SimulatedReader
from cdc_conformance.simulated.source import SimulatedOptions
from cdc_core import Duration, Frontier, RangefeedContext, Slice, SliceReader, StepLimit, Timestamp, Token
from cdc_core.store.values import Progress

_NO_LIMIT = StepLimit(rows=10**9, bytes=10**12)


class Follower(Feed):
    """A started changefeed that keeps the rows that it reads in `changes`. Each slice is read by a new reader.

    *options* are those of the rangefeed, *context* fields of its context such as `diff`. With *resume_from*, the
    `progress` of another follower, it continues from there. It releases history only on request.
    """

    def __init__(
        self,
        db: SimulatedDatabase,
        *tables: str,
        limit: StepLimit = _NO_LIMIT,
        resume_from: Progress | None = None,
        options: dict[str, Any] | None = None,
        **context: Any,
    ) -> None:
        fields = {"changefeed": "f", "feed_id": "f" * 12, "uri": db.uri, "tables": tables or ("t",), **context}
        parsed = SimulatedOptions(**{"idle_interval": Duration(0.0), **(options or {})})
        self._context = RangefeedContext(options=parsed, **fields)
        super().__init__(self, limit=limit, tables=self._context.tables, patience_s=20.0)
        self.saved = resume_from
        self.start()

    @property
    def context(self) -> RangefeedContext:
        """The context of the rangefeed's parts, pickled and unpickled as on its way to another process."""
        context: RangefeedContext = pickle.loads(pickle.dumps(self._context))
        return context

    @property
    def token(self) -> Token:
        return self.progress.token

    @property
    def frontier(self) -> Frontier:
        return self.progress.frontier

    def open_rangefeed(self) -> SimulatedRangefeed:
        return SimulatedRangefeed(self.context)

    def open_planner(self) -> SimulatedPlanner:
        return SimulatedPlanner(self.context)

    def open_reader(self) -> SimulatedReader:
        return SimulatedReader(self.context)

    def open_history(self) -> SimulatedHistory:
        return SimulatedHistory(self.context)

    def read(self, slice_: Slice, *, index: int = 0, reader: SliceReader | None = None) -> Reading:
        reading = super().read(slice_, index=index, reader=reader or self.open_reader())
        for batch in reading.batches:
            assert batch.row_below(slice_.lower) is None, f"{batch} has a row below {slice_.lower}"
        return reading

    def execute(self, plan: Plan) -> Step:
        step, reached = super().execute(plan), Frontier.from_json(self.frontier.to_json())
        for reading in step.readings:
            assert not self.resolved or reading.slice.lower > self.resolved, f"{reading.slice} is not above a mark"
            for mark in reading.marks:
                assert reached.of(mark.span) < mark.timestamp, f"{mark} does not advance its span"
                reached.forward(mark.span, mark.timestamp)
        return step

    def step(self, *, release: bool = False) -> Step | None:
        return super().step(release=release)

    def until(self, timestamp: Timestamp) -> None:
        """Run steps until everything up to *timestamp* is resolved. Fails if that never happens."""
        self.steps_until(lambda: self.resolved >= timestamp, what=f"{timestamp} was not resolved", release=False)
