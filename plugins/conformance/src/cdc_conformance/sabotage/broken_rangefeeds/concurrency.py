"""Rangefeeds that are right only while nobody else commits. Where each is wrong, it waits for another's commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_conformance.sabotage.broken_rangefeeds.parts import LIVE, BrokenPlanner, BrokenReader, Items, rebuilt, tagged
from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.source import SimulatedToken, Source
from cdc_conformance.workload import OTHERS
from cdc_core import RowBatch, Slice, Span, SpanMark, StepLimit, Timestamp, Token

_CALLS, _PAUSE_S = 200, 0.001


def _until(source: Source, done: Callable[[Cluster], object]) -> Cluster:
    """Return the state of the source when *done* holds, or after a while; at once if there are no others."""
    pause = threading.Event()
    for _ in range(_CALLS if any(thread.name == OTHERS for thread in threading.enumerate()) else 0):
        if done(source.cluster):
            break
        pause.wait(_PAUSE_S)
    return source.cluster


def committed(source: Source) -> Timestamp | None:
    """Return the time of the last commit if others have committed during this call."""
    known = source.cluster.high
    now = _until(source, lambda cluster: cluster.high > known).high
    return now if now > known else None


def _marked(items: Items, at: Callable[[SpanMark], Timestamp]) -> Items:
    return [replace(item, timestamp=at(item)) if isinstance(item, SpanMark) else item for item in items]


@mistakes
class Planning(BrokenPlanner):
    @breaks(f"{LIVE}[open_transactions_before_tip]", "advance")
    def looks_for_open_transactions_first(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Looks for open transactions before it reads where the log ends: marks pass those that begin in between."""
        known = set(self.source.cluster.transactions)
        cluster = _until(self.source, lambda cluster: _begun(cluster, known))
        if _begun(cluster, known):
            self.source.database.tick()
        token = SimulatedToken.from_token(end := super().advance(start, after=after, limit=limit))
        cluster = self.source.cluster
        if token.scan is not None or not _begun(cluster, known):
            return end
        for name in self.source.names:
            held = [
                intent.timestamp.prev()
                for transaction in cluster.transactions.values()
                for (table, _), intent in transaction.intents.items()
                if table == name and transaction.name in known
            ]
            token.frontier.forward(Span(name), min([*(range_.closed for range_ in cluster.ranges[name]), *held]))
        return replace(token, events=cluster.events).to_token()

    @breaks(f"{LIVE}[rows_of_a_later_snapshot]", "slices")
    def reads_rows_as_of_later(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        """Reads the rows of a step as of a later snapshot, and leaves out those that have changed since its end."""
        found, known = super().slices(start, end, after=after), self.source.cluster.high
        committed(self.source)
        cluster = self.source.cluster
        later = {
            (name, id_)
            for name in self.source.names
            for _, id_ in cluster.tables[name].changes(Span(name), after=known, upto=cluster.high)
        }
        return tagged(found, later)


@breaks(f"{LIVE}[clock_before_tip]")
class ReadsTheClockBeforeTheTip(BrokenPlanner):
    """Marks a step with a clock that it reads before it reads where the log ends."""

    clock: Timestamp | None = None

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        clock = self.source.cluster.high
        self.clock = None if committed(self.source) is None else clock
        return super().advance(start, after=after, limit=limit)

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        return tagged(super().slices(start, end, after=after), self.clock)


@mistakes
class Reading(BrokenReader):
    @breaks(f"{LIVE}[clock_before_tip]", "log")
    def reads_the_clock_before_the_tip_reader(self, items: Items) -> Items:
        """The reader of `ReadsTheClockBeforeTheTip`."""
        begin, clock = self.slice_.lower.prev(), self.tag
        return _marked(items, lambda mark: mark.timestamp if clock is None else min(mark.timestamp, max(begin, clock)))

    @breaks(f"{LIVE}[rows_of_a_later_snapshot]", "log")
    def reads_rows_as_of_later_reader(self, items: Items) -> Items:
        """The reader of `ReadsRowsAsOfLater`."""

        def kept(rows: RowBatch) -> RowBatch:
            values = rows.batch.to_pylist()
            return rebuilt(rows, [row for row in values if (rows.schema.name.full, row["key"]["id"]) not in self.tag])

        return [kept(item) if isinstance(item, RowBatch) else item for item in items]

    @breaks(f"{LIVE}[clock_after_reading]", "log")
    def marks_with_the_clock_after_reading(self, items: Items) -> Items:
        """Marks a slice with the clock that it reads after the last row."""
        now = committed(self.source)
        return _marked(items, lambda mark: mark.timestamp if now is None else max(mark.timestamp, now))


def _begun(cluster: Cluster, known: set[str]) -> bool:
    """Return whether a transaction that is not *known* has written a row and is open."""
    return any(one.intents for one in cluster.transactions.values() if one.name not in known)
