"""Promises about the rows of the initial scan and of the log, and about the transition from one to the other."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, defaultdict
from contextlib import closing

import pytest

from cdc_conformance.rangefeeds.changes import newest, versions
from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import Op, TerminalError, Timestamp


class InitialScan(RangefeedSuite):
    """The initial scan, and the transition from it to the log."""

    def test_initial_scan_yields_every_row_once(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Every row that a table holds at the start is read exactly once, if nothing writes meanwhile.

        A consumer does not see a missing row until the row changes. If this fails, look at the bounds of chunks: one
        bound of each must be exclusive, and the last chunk must be open-ended. If every row is read twice, the scan
        begins again when the next attempt starts.
        """
        first, second = workload.tables
        workload.fill(first, 60)
        workload.fill(second, 7)
        feed = open_feed(rows=20).scan()
        feed.restart()
        feed.catch_up()
        read = Counter(change.row_key for change in feed.changes)
        expected = Counter(dict.fromkeys(workload.rows, 1))
        missing, extra = sorted(expected - read), sorted(read - expected)
        assert not missing, f"the scan missed {len(missing)} of {len(expected)} rows; the first is {missing[0]}"
        assert not extra, f"the scan yielded {len(extra)} rows too many; the first is {extra[0]}"

    def test_scanned_rows_have_the_op_scan(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A row of the scan has the op SCAN, and its `before` is null.

        The op tells consumers that the row may be as old as its table, and that it did not change just now.
        """
        workload.fill(workload.tables[0], 10)
        workload.fill(workload.tables[1], 10)
        feed = open_feed().scan()
        for change in feed.changes:
            assert change.op is Op.SCAN, f"a row of the scan has the op {change.op.name}: {change}"
            assert change.before is None, f"before of a scanned row is {change.before}: {change}"

    def test_without_an_initial_scan_only_later_changes_arrive(self, workload: Workload, open_feed: OpenFeed) -> None:
        """With initial_scan = 'no', the rows that exist at the start are not read, but their later changes are.

        `RangefeedContext.initial_scan` holds the user's choice.
        """
        table = workload.tables[0]
        workload.fill(table, 5)
        feed = open_feed(initial_scan=False, start=True)
        workload.put(table, 2, note="later")
        feed.catch_up()
        found = versions(feed.changes)
        assert found == {(table, 2): [2]}, f"after the start only version 2 of row 2 was written, but {found} arrived"

    def test_empty_tables_are_resolved(self, open_feed: OpenFeed) -> None:
        """A changefeed of empty tables resolves like any other: their spans get marks.

        All tables resolve together, so one empty table without marks holds back the whole changefeed.
        """
        feed = open_feed().scan()
        feed.catch_up()
        known = feed.resolved
        feed.steps_until(lambda: feed.resolved > known, what=f"empty tables stay resolved at {known}")
        assert not feed.changes, f"a row of an empty table arrived: {feed.changes[0]}"

    def test_scan_progress_rises_until_the_scan_is_complete(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`scan_progress` counts up to its total and never beyond, and is None once the scan is complete.

        It depends only on the token and needs no connection, because the status calls it often.
        """
        table = workload.tables[0]
        for first in range(1, 101, 20):
            workload.fill(table, 20, first=first, note="x" * 200)
        feed = open_feed(table, rows=20).scan()
        workload.put(table, 1)
        feed.catch_up()
        with closing(feed.parts.open_rangefeed()) as unused:
            found = [unused.scan_progress(saved.token) for saved in feed.saves]
        scanning = [progress for progress in found if progress is not None]
        assert scanning, "the scan of a table with rows has no progress"
        assert found[: len(scanning)] == scanning, f"the scan was complete and started again: {found}"
        for one, two in itertools.pairwise(scanning):
            assert one.done <= two.done, f"the scan's progress fell from {one} to {two}"
        for progress in scanning:
            assert 0 <= progress.done <= progress.total, f"the scan's progress exceeds its total: {progress}"
            assert progress.unit, f"the scan's progress has no unit: {progress}"

    def test_rows_changed_during_the_scan_arrive_in_order(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Rows are written between the steps of the scan; the versions of each key arrive oldest first.

        If this fails, look at the scanned version of a row: read late but under an old snapshot, it follows the newer
        version from the log. A scan must read as of a time that the log has reached.
        """
        table = workload.tables[0]
        for first in range(1, 121, 20):
            workload.fill(table, 20, first=first, note="x" * 200)
        feed = open_feed(table, bytes_=16_000, start=True)
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
            assert n >= known, f"an older version followed version {known} during the scan: {change}"
            reached[change.row_key] = n

    def test_no_row_is_missed_between_scan_and_log(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Transactions that are open when the feed starts commit during the scan; their rows arrive.

        What the snapshot does not show must come from the log. The log must be read from exactly the snapshot's place,
        by the time of commits: a transaction may have begun before the snapshot.
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
        # Some sources cannot start before open transactions have ended.
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
            f"row {wrong[0]} is at version {expected.get(wrong[0])}, but the newest version that arrived is "
            f"{found.get(wrong[0])}; {len(wrong)} rows differ"
        )


class Transactions(RangefeedSuite):
    """The log: which rows of transactions arrive, in which order and with which timestamps."""

    def test_every_committed_version_arrives(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Each committed version of a row arrives, also of a row that changes all the time.

        Otherwise consumers that keep a history have gaps. If one transaction writes a row several times, only the last
        write is a version.
        """
        feed = open_feed(start=True)
        hot = workload.tables[0], 99
        for _ in range(40):
            workload.put(*hot)
        workload.run(30, settle=True)
        feed.catch_up()
        found = versions(feed.changes)
        for key, expected in workload.history.numbers().items():
            assert found.get(key) == expected, (
                f"the versions {expected} of row {key} were committed, but {found.get(key)} arrived"
            )

    def test_rolled_back_rows_do_not_arrive(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Rows of a transaction that was rolled back do not arrive.

        If this fails, rows are yielded before the outcome of their transaction is known.
        """
        first, second = workload.tables
        workload.put(first, 1)
        feed = open_feed().scan()
        for _ in range(3):
            transaction = workload.begin()
            transaction.put(first, 1, note="rolled back")
            transaction.put(second, 2, note="rolled back")
            workload.put(second, 3)
            feed.step()
            transaction.rollback()
            workload.put(first, 4)
            feed.step()
        workload.put(first, 1, note="kept")
        feed.catch_up()
        wrong = [change for change in feed.changes if change.after and change.after["note"] == "rolled back"]
        assert not wrong, f"a row of a transaction that was rolled back arrived: {wrong[0]}"

    def test_a_long_transaction_arrives_after_its_commit(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A transaction stays open during many others and several steps; all its rows arrive after its commit.

        Its rows may be in the log long before its commit. A feed that has released that part of the log loses them.
        """
        first, second = workload.tables
        feed = open_feed(start=True)
        long = workload.begin()
        long.put(first, 50, note="long")
        for id_ in range(1, 8):
            workload.put(first, id_)
            workload.put(second, id_)
            feed.step()
            long.put(second, 50 + id_, note="long")
        long.commit()
        workload.put(first, 1)
        feed.catch_up()
        arrived = {change.row_key for change in feed.changes if change.after and change.after["note"] == "long"}
        expected = {(first, 50), *((second, 50 + id_) for id_ in range(1, 8))}
        assert arrived == expected, f"rows of a long transaction did not arrive: {sorted(expected - arrived)}"

    def test_all_rows_of_a_transaction_have_one_timestamp(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`updated` is the commit time: equal for all rows of a small transaction, across tables.

        Consumers group rows into transactions by it. Rows of a transaction that does not fit in memory may differ in
        the logical counter.
        """
        first, second = workload.tables
        feed = open_feed(start=True)
        for number in range(3):
            transaction = workload.begin()
            for id_ in range(1, 6):
                transaction.put(first, id_, note=f"together {number}")
                transaction.put(second, id_, note=f"together {number}")
            transaction.commit()
        feed.catch_up()
        times: dict[str, set[Timestamp]] = defaultdict(set)
        for change in feed.changes:
            if change.after:
                times[change.after["note"]].add(change.updated)
        assert len(times) == 3, f"three transactions committed, but rows of {sorted(times)} arrived"
        for note, several in times.items():
            assert len(several) == 1, (
                f"the rows of one transaction ({note}) have {len(several)} timestamps: {sorted(several)}"
            )

    def test_ops_are_correct(self, workload: Workload, open_feed: OpenFeed, first_table: str) -> None:
        """The op is INSERT if there was no row before, UPDATE if there was one, DELETE if there is none afterwards.

        It describes the transaction as a whole: a row that is deleted and inserted in one transaction is updated.
        """
        feed = open_feed(start=True)
        workload.put(first_table, 1)
        workload.put(first_table, 1)
        workload.delete(first_table, 1)
        workload.put(first_table, 1)
        again = workload.begin()
        again.delete(first_table, 1)
        again.put(first_table, 1)
        again.commit()
        feed.catch_up()
        ops = [change.op.name for change in sorted(feed.changes, key=lambda change: change.updated)]
        expected = [op.name for op in (Op.INSERT, Op.UPDATE, Op.DELETE, Op.INSERT, Op.UPDATE)]
        assert ops == expected, f"the ops must be {expected}, not {ops}"

    def test_a_dropped_table_stops_the_changefeed(self, workload: Workload, open_feed: OpenFeed) -> None:
        """After a watched table is dropped, the feed raises a TerminalError that names the table.

        If it continues without the table, it looks healthy while consumers wait for rows that cannot come.
        """
        first, second = workload.tables
        workload.fill(first, 3)
        workload.fill(second, 3)
        feed = open_feed().scan()
        feed.catch_up()
        workload.writer.drop_table(first)
        workload.put(second, 4)
        with pytest.raises(TerminalError) as raised:
            feed.steps_until(lambda: False, what="the feed did not notice that a watched table was dropped")
        bare = first.rpartition(".")[2].strip('"')
        assert bare in str(raised.value), f"the error does not name the table {bare}: {raised.value}"
