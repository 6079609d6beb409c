"""Promises about marks: how far a slice got, what is resolved, and the source's clock."""

from __future__ import annotations

import time

from cdc_conformance.promises import requires
from cdc_conformance.rangefeeds.changes import newest
from cdc_conformance.rangefeeds.cuts import torn
from cdc_conformance.rangefeeds.driver import Feed
from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import Frontier, Op, RowBatch, Span, Timestamp

__all__ = ["Marks"]

_ASKED, _SLOW_S = 50, 0.1
"""How often an idle source is asked, and from when on a step is slow enough to keep nobody busy."""


class Marks(RangefeedSuite):
    def test_marks_come_after_the_rows_of_their_slice(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`read` yields all rows of a slice, and then a mark for each span that it advances; at the least one.

        The engine takes the marks for the end: rows after them would be outside of what they say.
        """
        workload.fill(workload.tables[0], 5)
        feed = open_feed()
        names = {schema.name.full for schema in feed.driver.schemas()}
        feed.start()
        feed.scan()
        workload.run(10)
        workload.settle()
        feed.catch_up()
        for step in feed.steps:
            for reading in step.readings:
                kinds = ["row" if isinstance(item, RowBatch) else "mark" for item in reading.items]
                assert reading.marks, f"a slice of step {step.number} has no mark"
                assert kinds == sorted(kinds, reverse=True), f"rows came after a mark in step {step.number}: {kinds}"
                for mark in reading.marks:
                    assert mark.span.table in names, f"a mark is for {mark.span}, which is none of {sorted(names)}"

    def test_rows_are_at_or_below_the_mark_of_their_span(self, workload: Workload, open_feed: OpenFeed) -> None:
        """No row of a span in a slice has `updated` above the span's mark in it.

        What is read next begins above the mark; such a row would come again, or be taken for one that came too late.
        """
        workload.fill(workload.tables[0], 5)
        feed = open_feed()
        feed.start()
        feed.scan()
        workload.run(20)
        workload.settle()
        feed.catch_up()
        for step in feed.steps:
            for reading in step.readings:
                for batch in reading.batches:
                    table = batch.schema.name.full
                    reached = max(
                        (mark.timestamp for mark in reading.marks if mark.span.table == table), default=Timestamp()
                    )
                    assert batch.latest() <= reached, (
                        f"a row of {table} is from {batch.latest()}, above {reached}, which the marks of its slice say"
                    )

    def test_rows_are_above_the_marks_of_earlier_steps(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A row's `updated` is above every mark that an earlier step gave its span; that of a scanned row may equal it.

        A resolved mark is a word given to consumers: nothing at or below it comes any more. So `Slice.lower`, by which
        sinks name files, is above what earlier steps have resolved for all tables together; the engine stops where it
        is not. Look at commits that happen while a step's end and its clock are being read.
        """
        first = workload.tables[0]
        workload.fill(first, 20)
        feed = open_feed(rows=10)
        feed.start()
        feed.scan()
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
        spans = {schema.name.table: Span(schema.name.full) for schema in feed.driver.schemas()}
        for step in feed.steps:
            for change in step.changes:
                mark = reached.of(spans[change.table.rpartition(".")[2].strip('"')])
                late = change.updated < mark or (change.updated == mark and change.op is not Op.SCAN)
                assert not late, f"a row is not above {mark}, which an earlier step had marked: {change}"
            for reading in step.readings:
                lower, known = reading.slice.lower, resolved.high_water
                assert lower > known, (
                    f"a slice of step {step.number} says that its rows begin at {lower}, not above {known}, which "
                    "earlier steps had resolved for all tables"
                )
            for mark_ in step.marks:
                reached.forward(mark_.span, mark_.timestamp)
                if mark_.resolved:
                    resolved.forward(mark_.span, mark_.timestamp)

    def test_no_row_is_below_its_slices_lower_bound(self, workload: Workload, open_feed: OpenFeed) -> None:
        """No row of a slice has `updated` below `Slice.lower`.

        Sinks name files by it: a file is skipped by who has read up to a resolved timestamp above its name.
        """
        workload.fill(workload.tables[0], 20)
        feed = open_feed(rows=10)
        feed.start()
        for _ in feed.patiently("20 rows and 10 commits did not arrive"):
            if len(workload.history) > 10 and not feed.scanning and feed.resolved:
                break
            if not feed.scanning:
                workload.run(2)
            step = feed.step()
            for reading in () if step is None else step.readings:
                lower = reading.slice.lower
                for change in reading.changes:
                    assert change.updated >= lower, f"a row is below {lower}, where its slice begins: {change}"

    def test_resolved_never_moves_back(self, workload: Workload, open_feed: OpenFeed) -> None:
        """No resolved mark of a span is below one that it had before, through idle times and a restart.

        Consumers have acted on the earlier one.
        """
        workload.fill(workload.tables[0], 5)
        feed = open_feed()
        feed.start()
        feed.scan()
        workload.run(5)
        workload.settle()
        feed.catch_up()
        for _ in range(3):
            feed.step()
        workload.run(5)
        workload.settle()
        feed.restart()
        feed.catch_up()
        frontier = Frontier([span for span, _ in feed.saves[0].frontier])
        for step in feed.steps:
            for mark in step.marks:
                if mark.resolved:
                    reached = frontier.of(mark.span)
                    assert mark.timestamp >= reached, (
                        f"step {step.number} resolves {mark.span} at {mark.timestamp}, after an earlier step had "
                        f"resolved it at {reached}"
                    )
            for mark in step.marks:
                if mark.resolved:
                    frontier.forward(mark.span, mark.timestamp)

    def test_nothing_is_resolved_before_the_scan_is_complete(
        self, workload: Workload, open_feed: OpenFeed, many_rows: int
    ) -> None:
        """While any table is still being scanned, the tables together are not resolved at all.

        A resolved timestamp says that what a consumer has is the source at that time, and it lacks rows still. Look at
        marks that stand for a whole table when only a part of it was read.
        """
        first, second = workload.tables
        workload.fill(first, 3)
        workload.fill(second, many_rows // 2, note="x" * 200)
        feed = open_feed(bytes_=16_000)
        feed.start()
        for _ in feed.patiently("the initial scan is not complete"):
            if not feed.scanning:
                break
            workload.put(first, 1)
            feed.step()
            if feed.scanning:
                assert not feed.resolved, f"{feed.resolved} is resolved while the scan is at {_progress(feed)}"
        feed.catch_up()

    def test_a_resolved_timestamp_is_a_consistent_cut(self, workload: Workload, open_feed: OpenFeed) -> None:
        """The rows with `updated` at or below a resolved timestamp, all read by then, are the source at one moment.

        They hold each transaction whole or not at all, also when a step ends in the midst of a backlog: a consumer that
        applies rows up to a resolved timestamp sees a state that the database could have been in.
        """
        first, second = workload.tables
        feed = open_feed(rows=30)
        feed.start()
        feed.scan()
        for begin in range(100, 128, 4):
            workload.fill(first, 4, first=begin)
        for begin in range(100, 160, 4):  # the other table rests meanwhile
            workload.fill(second, 4, first=begin)
        for number in range(20):
            transaction = workload.begin()
            for table, most in ((first, 7), (second, 5)):
                transaction.put(table, number % most)
                transaction.put(table, number % most + 10)
            if number % 3 == 2:
                transaction.delete(second, (number - 1) % 5)
            transaction.commit()
        until = feed.driver.now()
        seen: list[tuple[Timestamp, int]] = []
        for _ in feed.patiently(f"a backlog is not resolved up to {until}"):
            feed.step()
            if not seen or feed.resolved > seen[-1][0]:
                seen.append((feed.resolved, len(feed.changes)))
            if feed.resolved >= until:
                break
        feed.catch_up()
        for resolved, count in seen:
            state, later = newest(feed.changes[:count], until=resolved), newest(feed.changes, until=resolved)
            missing = sorted(key for key, change in later.items() if state.get(key) != change)
            assert not missing, f"{resolved} was resolved, but this came only afterwards: {later[missing[0]]}"
            wrong = torn(state, workload.history)
            assert wrong is None, f"what had arrived when {resolved} was resolved is no state of the source: {wrong}"

    def test_resolving_now_means_that_all_is_there(self, workload: Workload, open_feed: OpenFeed) -> None:
        """When what `now` returned is resolved, everything that was committed before the call has been read.

        `cdc run --once` ends there, and so do the audits of consumers. Look at commits that are not flushed yet, or
        that another node's clock stamps ahead of yours.
        """
        feed = open_feed()
        feed.start()
        feed.scan()
        workload.run(30)
        workload.settle()
        workload.put(workload.tables[0], 91)
        until = feed.driver.now()
        feed.steps_until(lambda: feed.resolved >= until, what=f"{until} is not resolved")
        found = newest(feed.changes)
        for key, rows in workload.history.versions().items():
            n = None if rows[-1] is None else rows[-1]["n"]
            arrived = found.get(key)
            assert arrived is not None, f"{until} is resolved, but nothing of row {key} arrived"
            assert arrived.n == n, (
                f"{until} is resolved, but version {n} of row {key}, which was committed before, did not arrive; the "
                f"newest that did is: {arrived}"
            )
            assert arrived.updated <= until, f"now was {until}, but what was committed before is above it: {arrived}"

    def test_an_idle_source_goes_on_resolving(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Nothing is written any more, and resolved timestamps rise all the same, again and again.

        Consumers that wait for a timestamp would wait for ever. The end of a step holds the source's clock.
        """
        workload.put(workload.tables[0], 1)
        feed = open_feed()
        feed.start()
        feed.scan()
        feed.catch_up()
        for _ in range(3):
            known = feed.resolved
            _idle_until(feed, known)

    def test_nothing_to_do_gives_the_token_back(self, workload: Workload, open_feed: OpenFeed) -> None:
        """When there is nothing to do yet, `advance` returns a token that equals its start.

        The engine asks many times a second; a rangefeed that always finds something keeps it and the sink busy. One
        that takes its time over a step may find that the source's clock has gone on meanwhile.
        """
        workload.put(workload.tables[0], 1)
        feed = open_feed()
        feed.start()
        feed.scan()
        feed.catch_up()
        begun = time.monotonic()
        idle = any(feed.step() is None for _ in range(_ASKED))
        took_s = time.monotonic() - begun
        assert idle or took_s > _ASKED * _SLOW_S, (
            f"asked {_ASKED} times in a row on an idle source, advance() gave {_ASKED} steps in {took_s:.1f} s and "
            "never its start"
        )

    @requires("multiple_slices", "the rows of a step must be divided")
    def test_no_key_is_in_two_slices_of_a_step(self, workload: Workload, open_feed: OpenFeed, many_rows: int) -> None:
        """Slices of a step are read at the same time, so a key has its rows in one of them only.

        In two, their order at the sink would be chance.
        """
        table = workload.tables[0]
        workload.fill(table, many_rows, note="x" * 100)
        feed = open_feed(parallelism=4)
        feed.start()
        feed.scan()
        for _ in range(3):
            workload.run(10)
            workload.settle()
            feed.catch_up()
        several = max(len(step.readings) for step in feed.steps)
        assert several > 1, f"a scan of {many_rows} rows for 4 tasks was never divided into slices"
        for step in feed.steps:
            home: dict[object, int] = {}
            for change in step.changes:
                known = home.setdefault(change.row_key, change.slice)
                assert known == change.slice, f"slices {known} and {change.slice} have rows of one key: {change}"


def _progress(feed: Feed) -> object:
    return feed.driver.scan_progress(feed.progress.token)


def _idle_until(feed: Feed, known: Timestamp) -> None:
    feed.steps_until(lambda: feed.resolved > known, what=f"nothing is written, and resolved stays at {known}")
