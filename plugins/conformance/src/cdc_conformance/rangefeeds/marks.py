"""Promises about span marks, resolved timestamps and the source's clock."""

from __future__ import annotations

import time
from collections.abc import Mapping

from cdc_conformance.promises import requires
from cdc_conformance.rangefeeds.changes import Change, newest
from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import History, RowKey, Workload
from cdc_core import Frontier, Op, RowBatch, Span, Timestamp

_CALLS, _SLOW_S = 50, 0.1
"""How often an idle planner is called, and how long a step must take not to keep the engine busy."""


def torn(state: Mapping[RowKey, Change], history: History) -> str | None:
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


class Marks(RangefeedSuite):
    """Span marks, resolved timestamps and the source's clock."""

    def test_span_marks_follow_the_rows_of_their_slice(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`read` yields all rows of a slice, then at least one mark: one for each span that the slice advances.

        A mark covers the rows before it. Rows after it would not be covered.
        """
        workload.fill(workload.tables[0], 5)
        feed = open_feed()
        names = {schema.name.full for schema in feed.rangefeed.schemas()}
        feed.scan()
        workload.run(10, settle=True)
        feed.catch_up()
        for step in feed.steps:
            for reading in step.readings:
                kinds = ["row" if isinstance(item, RowBatch) else "mark" for item in reading.items]
                assert reading.marks, f"a slice of step {step.number} has no mark"
                assert kinds == sorted(kinds, reverse=True), f"rows follow a mark in step {step.number}: {kinds}"
                for mark in reading.marks:
                    assert mark.span.table in names, f"a mark is for {mark.span}, but the tables are {sorted(names)}"

    def test_rows_are_at_or_below_the_mark_of_their_span(self, workload: Workload, open_feed: OpenFeed) -> None:
        """No row of a span in a slice has `updated` above the span's mark in that slice.

        The next step reads from the mark on: it would repeat such a row.
        """
        workload.fill(workload.tables[0], 5)
        feed = open_feed().scan()
        workload.run(20, settle=True)
        feed.catch_up()
        for reading in feed.readings:
            for batch in reading.batches:
                table = batch.schema.name.full
                marks = [mark.timestamp for mark in reading.marks if mark.span.table == table]
                reached = max(marks, default=Timestamp())
                assert batch.latest() <= reached, (
                    f"a row of {table} has updated {batch.latest()}, above {reached}, the mark of its slice"
                )

    def test_rows_are_above_the_marks_of_earlier_steps(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A row's `updated` is above all marks of its span in earlier steps; a scanned row's may be equal.

        A resolved mark promises consumers that no row at or below it follows. `Slice.lower`, by which sinks name files,
        must therefore be above what earlier steps have resolved for all tables together; otherwise the engine stops. If
        this fails, look at commits between reading a step's end and reading the clock.
        """
        first = workload.tables[0]
        workload.fill(first, 20)
        feed = open_feed(rows=10).scan()
        for _ in range(4):
            workload.run(3)
            feed.step()
            feed.step()
            plan = feed.plan()
            workload.run(3)
            if plan is not None:
                feed.finish(feed.execute(plan))
        workload.settle()
        feed.catch_up()
        reached, resolved = (Frontier([span for span, _ in feed.saves[0].frontier]) for _ in range(2))
        spans = {schema.name.table: Span(schema.name.full) for schema in feed.rangefeed.schemas()}
        for step in feed.steps:
            for change in step.changes:
                mark = reached.of(spans[change.table.rpartition(".")[2].strip('"')])
                late = change.updated < mark or (change.updated == mark and change.op is not Op.SCAN)
                assert not late, f"a row is not above {mark}, the mark of an earlier step: {change}"
            for reading in step.readings:
                lower, known = reading.slice.lower, resolved.high_water
                assert lower > known, (
                    f"the lower bound of a slice of step {step.number} is {lower}, which is not above {known}, the "
                    "resolved timestamp of all tables after earlier steps"
                )
            for mark_ in step.marks:
                reached.forward(mark_.span, mark_.timestamp)
                if mark_.resolved:
                    resolved.forward(mark_.span, mark_.timestamp)

    def test_no_row_is_below_its_slices_lower_bound(self, workload: Workload, open_feed: OpenFeed) -> None:
        """No row of a slice has `updated` below `Slice.lower`.

        Sinks name files by it: a consumer that has read up to a resolved timestamp skips files with smaller names.
        """
        workload.fill(workload.tables[0], 20)
        feed = open_feed(rows=10, start=True)
        quiet = True
        for _ in feed.patiently("20 rows and 10 commits did not arrive"):
            written = len(workload.history) > 10
            if written and not feed.scanning and feed.resolved:
                break
            if quiet and not written and not feed.scanning:  # small steps need not keep up with more
                workload.run(2)
            step = feed.step()
            readings = () if step is None else step.readings
            quiet = not any(reading.changes for reading in readings)
            for reading in readings:
                lower = reading.slice.lower
                for change in reading.changes:
                    assert change.updated >= lower, f"a row is below {lower}, the lower bound of its slice: {change}"

    def test_resolved_never_moves_back(self, workload: Workload, open_feed: OpenFeed) -> None:
        """No resolved mark of a span is below an earlier one, while the source is idle and after a restart.

        Consumers have already acted on the earlier mark.
        """
        workload.fill(workload.tables[0], 5)
        feed = open_feed().scan()
        workload.run(5, settle=True)
        feed.catch_up()
        for _ in range(3):
            feed.step()
        workload.run(5, settle=True)
        feed.restart()
        feed.catch_up()
        frontier = Frontier([span for span, _ in feed.saves[0].frontier])
        for step in feed.steps:
            for mark in step.marks:
                if mark.resolved:
                    reached = frontier.of(mark.span)
                    assert mark.timestamp >= reached, (
                        f"step {step.number} resolves {mark.span} at {mark.timestamp}, but an earlier step resolved it "
                        f"at {reached}"
                    )
            for mark in step.marks:
                if mark.resolved:
                    frontier.forward(mark.span, mark.timestamp)

    def test_nothing_is_resolved_before_the_scan_is_complete(
        self, workload: Workload, open_feed: OpenFeed, many_rows: int
    ) -> None:
        """While a table is still being scanned, there is no resolved timestamp for all tables together.

        A resolved timestamp tells consumers that they have every row as of that time, but some are still missing. If
        this fails, look at marks for a whole table of which only a part was read.
        """
        first, second = workload.tables
        workload.fill(first, 3)
        workload.fill(second, many_rows // 2, note="x" * 200)
        feed = open_feed(bytes_=16_000, start=True)
        for _ in feed.patiently("the initial scan is not complete"):
            if not feed.scanning:
                break
            workload.put(first, 1)
            feed.step()
            if feed.scanning:
                progress = feed.rangefeed.scan_progress(feed.progress.token)
                assert not feed.resolved, f"{feed.resolved} is resolved, but the scan is at {progress}"
        feed.catch_up()

    def test_a_resolved_timestamp_is_a_consistent_cut(self, workload: Workload, open_feed: OpenFeed) -> None:
        """All rows with `updated` at or below a resolved timestamp are a state that the database was in.

        They hold every transaction completely or not at all, also if a step ends within a backlog. Consumers apply rows
        up to a resolved timestamp to get a consistent state.
        """
        first, second = workload.tables
        feed = open_feed(rows=30).scan()
        for begin in range(100, 128, 4):
            workload.fill(first, 4, first=begin)
        for begin in range(100, 160, 4):  # the other table is idle meanwhile
            workload.fill(second, 4, first=begin)
        for number in range(20):
            transaction = workload.begin()
            for table, most in ((first, 7), (second, 5)):
                transaction.put(table, number % most)
                transaction.put(table, number % most + 10)
            if number % 3 == 2:
                transaction.delete(second, (number - 1) % 5)
            transaction.commit()
        until = feed.clock.now()
        seen: list[tuple[Timestamp, int]] = []
        for _ in feed.patiently(f"a backlog up to {until} is not resolved"):
            feed.step()
            if not seen or feed.resolved > seen[-1][0]:
                seen.append((feed.resolved, len(feed.changes)))
            if feed.resolved >= until:
                break
        feed.catch_up()
        for resolved, count in seen:
            state, later = newest(feed.changes[:count], until=resolved), newest(feed.changes, until=resolved)
            missing = sorted(key for key, change in later.items() if state.get(key) != change)
            assert not missing, f"this row arrived after {resolved} was resolved: {later[missing[0]]}"
            wrong = torn(state, workload.history)
            assert wrong is None, f"the rows resolved at {resolved} are not a state of the source: {wrong}"

    def test_resolving_now_covers_earlier_commits(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Once the timestamp that `now` returned is resolved, everything committed before that call has been read.

        `cdc run --once` and consumers' audits stop there. If this fails, look at commits that are not flushed yet, and
        at nodes whose clocks are ahead.
        """
        feed = open_feed().scan()
        workload.run(30, settle=True)
        workload.put(workload.tables[0], 91)
        until = feed.clock.now()
        feed.steps_until(lambda: feed.resolved >= until, what=f"{until} is not resolved")
        found = newest(feed.changes)
        for key, rows in workload.history.versions().items():
            n = None if rows[-1] is None else rows[-1]["n"]
            arrived = found.get(key)
            assert arrived is not None, f"{until} is resolved, but row {key} did not arrive"
            assert arrived.n == n, (
                f"{until} is resolved, but version {n} of row {key}, committed before, did not arrive; the newest "
                f"version that arrived is: {arrived}"
            )
            assert arrived.updated <= until, f"now() returned {until}, which is below an earlier commit: {arrived}"

    def test_an_idle_source_keeps_resolving(self, workload: Workload, open_feed: OpenFeed) -> None:
        """While nothing is written, the resolved timestamp keeps rising.

        Otherwise consumers that wait for a timestamp wait forever. The end of a step holds the source's clock.
        """
        workload.put(workload.tables[0], 1)
        feed = open_feed().scan()
        feed.catch_up()
        for _ in range(3):
            known = feed.resolved
            what = f"on an idle source, the resolved timestamp stays at {known}"
            feed.steps_until(lambda known=known: feed.resolved > known, what=what)  # type: ignore[misc]

    def test_advance_returns_its_start_when_idle(self, workload: Workload, open_feed: OpenFeed) -> None:
        """While there is nothing to do, `advance` returns a token that equals its start.

        The engine calls it many times a second: a planner that always returns a step keeps the engine and the sink
        busy. A planner with slow steps may return one each time, because the source's clock moves meanwhile.
        """
        workload.put(workload.tables[0], 1)
        feed = open_feed().scan()
        feed.catch_up()
        begun = time.monotonic()
        idle = any(feed.step() is None for _ in range(_CALLS))
        took_s = time.monotonic() - begun
        assert idle or took_s > _CALLS * _SLOW_S, (
            f"advance() was called {_CALLS} times on an idle source and always returned a step, {_CALLS} steps in "
            f"{took_s:.1f} s"
        )

    @requires("multiple_slices", "a step must have several slices")
    def test_no_key_is_in_two_slices_of_a_step(self, workload: Workload, open_feed: OpenFeed, many_rows: int) -> None:
        """All rows of a key in a step are in one slice.

        The slices of a step are read at the same time, so rows of a key in two slices would reach the sink in any
        order.
        """
        table = workload.tables[0]
        workload.fill(table, many_rows, note="x" * 100)
        feed = open_feed(parallelism=4).scan()
        for _ in range(3):
            workload.run(10, settle=True)
            feed.catch_up()
        several = max(len(step.readings) for step in feed.steps)
        assert several > 1, f"no step of the scan of {many_rows} rows for 4 tasks had several slices"
        for step in feed.steps:
            home: dict[object, int] = {}
            for change in step.changes:
                known = home.setdefault(change.row_key, change.slice)
                assert known == change.slice, f"slices {known} and {change.slice} have rows of one key: {change}"
