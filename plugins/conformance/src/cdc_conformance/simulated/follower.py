"""Follows a simulated database as the engine does, step by step in one process: for tests without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cdc_conformance.simulated.database import SimulatedDatabase
from cdc_conformance.simulated.history import SimulatedHistory
from cdc_conformance.simulated.options import SimulatedOptions
from cdc_conformance.simulated.planner import SimulatedPlanner
from cdc_conformance.simulated.rangefeed import SimulatedRangefeed
from cdc_conformance.simulated.reader import SimulatedReader
from cdc_core import Duration, Frontier, Op, RangefeedContext, RowBatch, Span, SpanMark, StepLimit, Timestamp, Token

__all__ = ["Arrival", "Follower"]

_NO_LIMIT = StepLimit(rows=10**9, bytes=10**12)
_MOST_STEPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A row as it arrived."""

    table: str
    version: int
    op: Op
    updated: Timestamp
    key: int
    after: dict[str, Any] | None
    before: dict[str, Any] | None
    mvcc: Timestamp | None


class Follower:
    """A changefeed that collects the rows that it reads. Each slice is read by a new reader, as on an executor.

    *options* are those of the rangefeed, *context* fields of its context such as `diff`. With *resume_from*, the
    `reached` of another follower, it continues from there.
    """

    def __init__(
        self,
        db: SimulatedDatabase,
        *tables: str,
        limit: StepLimit = _NO_LIMIT,
        resume_from: tuple[Token, Frontier] | None = None,
        options: dict[str, Any] | None = None,
        **context: Any,
    ) -> None:
        fields = {"changefeed": "f", "feed_id": "f" * 12, "uri": db.uri, "tables": tables or ("t",), **context}
        parsed = SimulatedOptions(**{"idle_interval": Duration(0.0), **(options or {})})
        self._context = RangefeedContext(options=parsed, **fields)
        self.limit = limit
        self.rangefeed = SimulatedRangefeed(self.context)
        self.planner = SimulatedPlanner(self.context)
        self.history = SimulatedHistory(self.context)
        self.intents: list[Token] = []
        self.batches: list[RowBatch] = []
        saved = None if resume_from is None else resume_from[0]
        self.token = self.rangefeed.start(saved, self.intents.append)
        if resume_from is None:
            self.frontier = Frontier([Span(schema.name.full) for schema in self.rangefeed.schemas()])
        else:
            self.frontier = Frontier.from_json(resume_from[1].to_json())

    @property
    def context(self) -> RangefeedContext:
        """The context of the rangefeed's parts, pickled and unpickled as on its way to another process."""
        context: RangefeedContext = pickle.loads(pickle.dumps(self._context))
        return context

    @property
    def reached(self) -> tuple[Token, Frontier]:
        """What the engine would save now, for `resume_from`."""
        return self.token, Frontier.from_json(self.frontier.to_json())

    def step(self) -> bool:
        """Run one step; return whether there was one to run."""
        end = self.planner.advance(self.token, after=self.frontier.latest, limit=self.limit)
        if end == self.token:
            return False
        high_water = self.frontier.high_water
        for slice_ in self.planner.slices(self.token, end, after=self.frontier.latest):
            assert not high_water or slice_.lower > high_water, f"{slice_} begins below {high_water}"
            for item in SimulatedReader(self.context).read(pickle.loads(pickle.dumps(slice_))):
                if isinstance(item, SpanMark):
                    assert self.frontier.of(item.span) < item.timestamp, f"{item} does not advance its span"
                    self.frontier.forward(item.span, item.timestamp)
                else:
                    assert item.row_below(slice_.lower) is None, f"{item} has a row below {slice_.lower}"
                    self.batches.append(item)
        self.token = end
        return True

    def until(self, timestamp: Timestamp) -> None:
        """Run steps until everything up to *timestamp* is resolved. Raises: AssertionError if that never happens."""
        for _ in range(_MOST_STEPS):
            if self.frontier.high_water >= timestamp:
                return
            self.step()
        raise AssertionError(f"{timestamp} was not resolved in {_MOST_STEPS} steps: {self.frontier}")

    def release(self) -> None:
        """Let the database forget the history before the present token."""
        self.history.release(self.token)

    @property
    def arrivals(self) -> list[Arrival]:
        return [arrival for batch in self.batches for arrival in _arrivals(batch)]


def _arrivals(batch: RowBatch) -> Iterator[Arrival]:
    for row in batch.batch.to_pylist():
        yield Arrival(
            table=batch.schema.name.table,
            version=batch.schema.version,
            op=Op(row["op"]),
            updated=Timestamp(**row["updated"]),
            key=row["key"]["id"],
            after=row["after"],
            before=row.get("before"),
            mvcc=Timestamp(**row["mvcc"]) if "mvcc" in row else None,
        )
