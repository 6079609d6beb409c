"""The promise about rows and marks while other clients of the source commit, between and during all calls."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from cdc_conformance.rangefeeds.changes import Change, newest, versions
from cdc_conformance.rangefeeds.driver import Feed
from cdc_conformance.rangefeeds.slices import assert_read_again
from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import OTHERS, History, RowKey, Transaction, Workload
from cdc_core import Frontier, Op, Span, Timestamp

_STEPS = 15
_PAUSE_S = 0.005
"""The wait between two commits."""
Clock = tuple[int, Timestamp]
"""How many transactions had committed, and what the source's clock was then."""


class Others(threading.Thread):
    """Commits all the time, in a thread of its own. Ends with the block.

    For a while each transaction changes one row of the first table, then rows of both, then one row of the second.
    In between, a transaction stays open while others commit. Nothing else may use *workload* in the block.
    """

    def __init__(self, workload: Workload) -> None:
        super().__init__(name=OTHERS, daemon=True)
        self._workload = workload
        self._end = threading.Event()
        self._open: Transaction | None = None
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join()
        if self._error is not None:
            raise self._error
        if self._open is not None:
            self._open.commit()

    def run(self) -> None:
        try:
            for number in itertools.count():
                if self._end.wait(_PAUSE_S):
                    break
                self._commit(number)
        except Exception as error:
            self._error = error

    def _commit(self, number: int) -> None:
        place, (first, second) = number % 24, self._workload.tables
        if place < 8 or place >= 16:
            self._workload.put(first if place < 8 else second, 1)
        else:
            both = self._workload.begin()
            both.put(first, 2 + place % 2)
            both.put(second, 2 + place % 3)
            if place % 2:
                both.delete(first, 2)
            both.commit()
        if place % 12 == 2:
            self._open = self._workload.begin()
            for table in (first, second):
                self._open.put(table, 50 + number % 3)
        elif place % 12 == 10 and self._open is not None:
            self._open.commit()
            self._open = None


class Concurrency(RangefeedSuite):
    """Rows and marks while others commit."""

    def test_rows_and_marks_are_right_while_others_commit(self, workload: Workload, open_feed: OpenFeed) -> None:
        """While others commit, every version arrives, in order, above all earlier marks and at or below its own.

        A mark promises consumers that no row at or below it follows: at each resolved timestamp, the rows up to it are
        a state that the database was in, and resolved timestamps never move back. Everything that was committed before
        `now` is called has `updated` at or below what it returns. All this holds after a restart too, and a slice that
        is read again has the same rows. If this fails, look at the order in which the end of a step, the open
        transactions and the clock are read: others commit in between.
        """
        first, second = workload.tables
        workload.fill(first, 120)
        feed = open_feed(rows=80)
        clocks: list[Clock] = []
        with Others(workload):
            feed.start()
            begun = len(workload.history)
            for _ in feed.patiently("others commit, but there are no further steps"):
                if len(feed.finished) >= _STEPS and not feed.scanning:
                    break
                clocks.append((len(workload.history), feed.clock.now()))
                plan = feed.plan()
                if plan is None:
                    continue
                step = feed.execute(plan)
                if step.number % 5 == 1:
                    assert_read_again(feed, step)
                if step.number % 8 == 4:
                    feed.restart()
                else:
                    feed.finish(step)
        for table, rows in ((first, 24), (second, 8)):  # a step ends where only the second table has more
            for id_ in range(1, rows + 1):
                workload.put(table, id_)
        feed.limit = replace(feed.limit, rows=8)
        clocks.append((len(workload.history), feed.clock.now()))
        feed.catch_up()
        feed.restart()
        feed.finish(feed.execute(feed.next_plan()))
        _assert_marks(feed, workload.history)
        _assert_order(feed.changes)
        _assert_complete(feed.changes, workload.history, since=begun)
        _assert_clocks(feed.changes, workload.history, clocks)


def _assert_marks(feed: Feed, history: History) -> None:
    """Assert that rows and marks of all steps are right. The marks of a step that was not saved do not count."""
    reached, resolved = (Frontier([span for span, _ in feed.saves[0].frontier]) for _ in range(2))
    spans = {schema.name.table: Span(schema.name.full) for schema in feed.rangefeed.schemas()}
    saved = {step.number for step in feed.finished}
    arrived: list[Change] = []
    for step in feed.steps:
        known = resolved.high_water
        for reading in step.readings:
            lower = reading.slice.lower
            own = {mark.span.table: mark.timestamp for mark in sorted(reading.marks, key=lambda mark: mark.timestamp)}
            assert lower > known, f"a slice of step {step.number} begins at {lower}, but {known} is resolved"
            for change in reading.changes:
                span = spans[change.table.rpartition(".")[2].strip('"')]
                end, earlier = own.get(span.table, Timestamp()), reached.of(span)
                assert change.updated >= lower, f"a row is below {lower}, the lower bound of its slice: {change}"
                assert change.updated <= end, f"a row is above {end}, the mark of its slice: {change}"
                late = change.updated < earlier or (change.updated == earlier and change.op is not Op.SCAN)
                assert not late, f"a row is not above {earlier}, the mark of an earlier step: {change}"
        arrived += step.changes
        if step.number not in saved:
            continue
        certain = [mark for mark in step.marks if mark.resolved]
        for mark in certain:
            at = resolved.of(mark.span)
            assert mark.timestamp >= at, f"step {step.number} resolves {mark.span} at {mark.timestamp}, below {at}"
        for mark in step.marks:
            reached.forward(mark.span, mark.timestamp)
        for mark in certain:
            resolved.forward(mark.span, mark.timestamp)
        if resolved.high_water > known:
            wrong = _torn(newest(arrived, until=resolved.high_water), history)
            assert wrong is None, f"the rows resolved at {resolved.high_water} are not a state of the source: {wrong}"


def _assert_order(changes: Sequence[Change]) -> None:
    """Assert that no version of a key arrived for the first time after a later one."""
    seen: dict[RowKey, list[Timestamp]] = {}
    for change in changes:
        times = seen.setdefault(change.row_key, [])
        if change.updated not in times:
            assert not times or change.updated > times[-1], f"a row arrived after its version of {times[-1]}: {change}"
            times.append(change.updated)


def _assert_complete(changes: Sequence[Change], history: History, *, since: int) -> None:
    """Assert that all versions of commits from number *since* on arrived, and none that was never committed."""
    found, later = versions(changes), history.numbers(since)
    for key, expected in history.numbers().items():
        there = found.get(key, [])
        wanted = expected[len(expected) - max(len(there), len(later.get(key, ()))) :]
        assert there == wanted, f"the last versions of row {key} are {wanted}, but {there} arrived"


def _assert_clocks(changes: Sequence[Change], history: History, clocks: Sequence[Clock]) -> None:
    """Assert that only versions that were committed after the clock was read are later than it."""
    for count, at in clocks:
        above = versions(change for change in changes if change.updated > at and change.op is not Op.SCAN)
        later = history.numbers(count)
        for key, numbers in above.items():
            most = len(later.get(key, ()))
            assert len(numbers) <= most, (
                f"now() returned {at}, which is below version {numbers[-most - 1]} of row {key}, committed before"
            )


def _torn(state: Mapping[RowKey, Change], history: History) -> str | None:
    """Return why *state*, the newest change of each key, is not a consistent cut of *history*; None if it is one.

    In a consistent cut every transaction is complete or absent, and no version lacks an earlier one. The column `n`
    numbers the versions of a row; a deleted row may be at any of its deletes.
    """
    versions = {key: [None, *numbers] for key, numbers in history.numbers().items()}
    possible: dict[RowKey, set[int]] = {}
    for key, order in versions.items():
        n = state[key].n if key in state else None
        possible[key] = {place for place, version in enumerate(order) if version == n}
        if not possible[key]:
            return f"version {n} of row {key} was never committed; the committed versions are {order[1:]}"
    places: list[list[tuple[RowKey, int]]] = []
    count = dict.fromkeys(versions, 0)
    for commit in history.commits:
        for write in commit:
            count[write.key] += 1
        places.append([(write.key, count[write.key]) for write in commit])
    return _settle(places, possible)


def _settle(places: list[list[tuple[RowKey, int]]], possible: dict[RowKey, set[int]]) -> str | None:
    """Narrow down the version of each key until every transaction is in or out; return the first torn transaction."""
    narrowed = True
    while narrowed:
        narrowed = False
        for number, commit in enumerate(places):
            inside = next((key for key, place in commit if min(possible[key]) >= place), None)
            outside = next((key for key, place in commit if max(possible[key]) < place), None)
            if inside is not None and outside is not None:
                return f"transaction {number} is torn: row {inside} arrived and row {outside} did not"
            if inside is None and outside is None:
                continue
            for key, place in commit:
                left = {known for known in possible[key] if (known >= place) is (inside is not None)}
                if not left:
                    return f"transaction {number} is torn: row {inside or outside} and row {key} do not match"
                narrowed |= left != possible[key]
                possible[key] = left
    return None
