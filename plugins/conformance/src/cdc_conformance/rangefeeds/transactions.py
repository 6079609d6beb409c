"""Promises about the log: which rows of transactions arrive, in which order and with which timestamps."""

from __future__ import annotations

from collections import defaultdict

import pytest

from cdc_conformance.rangefeeds.changes import versions
from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import Op, TerminalError, Timestamp

__all__ = ["Transactions"]


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

    def test_versions_of_a_key_arrive_in_order(self, workload: Workload, open_feed: OpenFeed) -> None:
        """In all steps and slices, the versions of each key arrive oldest first, deletes included.

        If an older version follows a newer one, a consumer's state stays wrong.
        """
        feed = open_feed(start=True)
        for _ in range(4):
            workload.run(12, settle=True)
            feed.step()
        feed.catch_up()
        for key, order in workload.history.numbers().items():
            reached = 0
            for change in feed.changes:
                if change.row_key != key:
                    continue
                places = [place for place, n in enumerate(order) if n == change.n]
                later = [place for place in places if place >= reached]
                assert later, (
                    f"the versions of row {key} are {order}; an older one arrived after number {reached}: {change}"
                )
                reached = later[0]

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

    def test_ops_are_correct(self, workload: Workload, open_feed: OpenFeed, table: str) -> None:
        """The op is INSERT if there was no row before, UPDATE if there was one, DELETE if there is none afterwards.

        It describes the transaction as a whole: a row that is deleted and inserted in one transaction is updated.
        """
        feed = open_feed(start=True)
        workload.put(table, 1)
        workload.put(table, 1)
        workload.delete(table, 1)
        workload.put(table, 1)
        again = workload.begin()
        again.delete(table, 1)
        again.put(table, 1)
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
