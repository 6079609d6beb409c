"""Promises about the initial scan, and the hand-over from it to the log."""

from __future__ import annotations

import itertools
import threading
from collections import Counter

from cdc_conformance.rangefeeds.changes import newest, versions
from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import Op

__all__ = ["Scanning"]


class Scanning(RangefeedSuite):
    def test_initial_scan_yields_every_row_once(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Every row that a table holds at the start is read exactly once while nobody writes.

        A row that is missing is one that the consumer will not see until it changes. Look at where chunks of the table
        meet: their ends must be exclusive on one side, and the last chunk must be open.
        """
        first, second = workload.tables
        workload.fill(first, 60)
        workload.fill(second, 7)
        feed = open_feed(rows=20)
        feed.start()
        feed.scan()
        read = Counter(change.row_key for change in feed.changes)
        expected = Counter(dict.fromkeys(workload.rows, 1))
        missing, more = sorted(expected - read), sorted(read - expected)
        assert not missing, f"the scan left out {len(missing)} of {len(expected)} rows, such as {missing[0]}"
        assert not more, f"the scan yielded {len(more)} rows more than there are, such as {more[0]} a second time"

    def test_scanned_rows_are_marked_as_scanned(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A row of the scan has the op SCAN, and no row before it.

        A consumer tells by it that the row may be as old as its table, and that nothing happened to it just now.
        """
        workload.fill(workload.tables[0], 10)
        workload.fill(workload.tables[1], 10)
        feed = open_feed()
        feed.start()
        feed.scan()
        for change in feed.changes:
            assert change.op is Op.SCAN, f"a row of the scan has the op {change.op.name}: {change}"
            assert change.before is None, f"a row of the scan has a row before it: {change} {change.before}"

    def test_without_an_initial_scan_only_later_changes_arrive(self, workload: Workload, open_feed: OpenFeed) -> None:
        """With initial_scan = 'no' the rows that are there at the start are not read; what happens to them later is.

        `RangefeedContext.initial_scan` says which of the two is wanted.
        """
        table = workload.tables[0]
        workload.fill(table, 5)
        feed = open_feed(initial_scan=False)
        feed.start()
        workload.put(table, 2, note="later")
        feed.catch_up()
        found = versions(feed.changes)
        assert found == {(table, 2): [2]}, (
            f"only version 2 of row 2 was written after the start, but there came {found}"
        )

    def test_empty_tables_are_resolved(self, open_feed: OpenFeed) -> None:
        """A changefeed of tables without rows is resolved like any other: their spans have marks.

        Nothing is resolved for any table until it is for all; one forgotten empty table stops a whole changefeed.
        """
        feed = open_feed()
        feed.start()
        feed.scan()
        feed.catch_up()
        known = feed.resolved
        feed.steps_until(lambda: feed.resolved > known, what=f"tables without rows stay resolved at {known}")
        assert not feed.changes, f"a row of a table without rows arrived: {feed.changes[0]}"

    def test_scan_progress_rises_until_there_is_none(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`scan_progress` counts up, never beyond its total, and is None as soon as the scan is complete.

        It is told by the token alone, by an instance that is connected to nothing: `cdc status` asks it.
        """
        table = workload.tables[0]
        for first in range(1, 101, 20):
            workload.fill(table, 20, first=first, note="x" * 200)
        feed = open_feed(table, rows=20)
        feed.start()
        feed.scan()
        workload.put(table, 1)
        feed.catch_up()
        unused = feed.open()
        found = [unused.scan_progress(saved.token) for saved in feed.saves]
        unused.close()
        scanning = [progress for progress in found if progress is not None]
        assert scanning, "the initial scan of a filled table has no progress"
        assert found[: len(scanning)] == scanning, f"the scan was over and began again: {found}"
        for one, two in itertools.pairwise(scanning):
            assert one.done <= two.done, f"the progress of the scan went back from {one} to {two}"
        for progress in scanning:
            assert 0 <= progress.done <= progress.total, f"the progress of the scan is beyond its total: {progress}"
            assert progress.unit, f"the progress of the scan does not say what it counts: {progress}"

    def test_rows_changed_during_the_scan_arrive_in_order(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Rows are written between the steps of the scan; the versions of each key arrive oldest first.

        The scanned version of a row is the danger: read late, and under a snapshot from before, it comes after the
        newer version that the log already brought. A scan must read as of a time that the log has reached.
        """
        table = workload.tables[0]
        for first in range(1, 121, 20):
            workload.fill(table, 20, first=first, note="x" * 200)
        feed = open_feed(table, bytes_=16_000)
        feed.start()
        for turn, _ in enumerate(feed.patiently("the initial scan is not complete")):
            if not feed.scanning:
                break
            if turn < 20:
                for id_ in range(1, 121, 13):
                    workload.put(table, id_, note="y" * 200)
                workload.put(table, 60)
            feed.step()
        feed.catch_up()
        reached: dict[object, int] = {}
        for change in feed.changes:
            known, n = reached.get(change.row_key, 0), change.n or 0
            assert n >= known, f"an older version came after version {known}, while the table was scanned: {change}"
            reached[change.row_key] = n

    def test_nothing_is_missed_between_scan_and_log(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Transactions are open when the feed starts and commit while it scans; their rows arrive all the same.

        What a snapshot does not show must come from the log, and the other way round: the place in the log from which
        the feed reads on has to be exactly that of the snapshot, also for transactions that had begun before it.
        """
        first, second = workload.tables
        for begin in range(1, 101, 20):
            workload.fill(first, 20, first=begin, note="x" * 200)
        workload.fill(second, 5)
        early, late = workload.begin(), workload.begin()
        early.put(first, 1, note="early")
        early.put(second, 101, note="early")
        early.delete(second, 1)
        late.put(first, 100, note="late")
        late.put(second, 102, note="late")
        feed = open_feed(bytes_=16_000)
        # Some sources cannot start before the transactions that are open have ended.
        starting = threading.Thread(target=feed.start)
        starting.start()
        starting.join(0.2)
        early.commit()
        if starting.is_alive():
            late.commit()
            starting.join(feed.patience_s)
            feed.step()
        else:
            feed.step()
            workload.put(first, 99)
            late.commit()
            feed.step()
        workload.put(first, 98)
        feed.scan()
        workload.put(first, 97)
        feed.catch_up()
        found = {key: change.n for key, change in newest(feed.changes).items() if not change.deleted}
        expected = {key: row["n"] for key, row in workload.rows.items()}
        wrong = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
        assert not wrong, (
            f"row {wrong[0]} is at version {expected.get(wrong[0])}, but the newest that arrived is "
            f"{found.get(wrong[0])}; {len(wrong)} rows differ"
        )
