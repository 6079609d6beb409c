"""Promises about the log: what arrives of transactions, in which order and with which timestamps."""

from __future__ import annotations

from collections import defaultdict

import pytest

from cdc_conformance.rangefeeds.changes import versions
from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import Op, TerminalError, Timestamp

__all__ = ["Following"]


class Following(RangefeedSuite):
    def test_every_committed_version_arrives(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Each version of a row that a transaction left behind arrives, also of a row that is written all the time.

        Consumers that keep a history see gaps otherwise. Only several writes of one row in *one* transaction count as
        one version: the last.
        """
        feed = open_feed()
        feed.start()
        hot = workload.tables[0], 99
        for _ in range(40):
            workload.put(*hot)
        workload.run(30)
        workload.settle()
        feed.catch_up()
        found = versions(feed.changes)
        for key, rows in workload.history.versions().items():
            expected = [None if row is None else row["n"] for row in rows]
            assert found.get(key) == expected, (
                f"of row {key} the versions {expected} were committed, not {found.get(key)}"
            )

    def test_versions_of_a_key_arrive_in_order(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Over all steps and slices, the versions of each key arrive oldest first; deletes have their place among them.

        An older version after a newer one leaves a consumer with a state that is wrong for good.
        """
        feed = open_feed()
        feed.start()
        for _ in range(4):
            workload.run(12)
            workload.settle()
            feed.step()
        feed.catch_up()
        for key, rows in workload.history.versions().items():
            order = [None if row is None else row["n"] for row in rows]
            reached = 0
            for change in feed.changes:
                if change.row_key != key:
                    continue
                places = [place for place, n in enumerate(order) if n == change.n]
                later = [place for place in places if place >= reached]
                assert later, (
                    f"the versions of row {key} are {order}; after number {reached} of them came an older one: {change}"
                )
                reached = later[0]

    def test_nothing_of_a_rolled_back_transaction_arrives(self, workload: Workload, open_feed: OpenFeed) -> None:
        """What a transaction wrote and took back was never there.

        Look at whether rows are handed out before the outcome of their transaction is known.
        """
        first, second = workload.tables
        workload.put(first, 1)
        feed = open_feed()
        feed.start()
        feed.scan()
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

    def test_a_long_transaction_arrives_when_it_commits(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A transaction stays open over many others and several steps; its rows arrive after it commits, all of them.

        Its rows may stand in the log long before its commit: a feed that has passed and forgotten that part loses them.
        """
        first, second = workload.tables
        feed = open_feed()
        feed.start()
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
        """`updated` is the time of the commit, the same for all rows of a small transaction, over tables too.

        Consumers put transactions together by it. (A transaction too large for memory may take several logical values.)
        """
        first, second = workload.tables
        feed = open_feed()
        feed.start()
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
        assert len(times) == 3, f"rows of three transactions were expected, not of {sorted(times)}"
        for note, several in times.items():
            assert len(several) == 1, (
                f"the rows of one transaction ({note}) have {len(several)} times: {sorted(several)}"
            )

    def test_ops_say_what_happened(self, workload: Workload, open_feed: OpenFeed) -> None:
        """INSERT where there was no row, UPDATE where there was one, DELETE where there is none any more.

        What counts is what a transaction as a whole did: a row deleted and inserted again in one is updated.
        """
        table = workload.tables[0]
        feed = open_feed()
        feed.start()
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
        assert ops == expected, f"the ops should be {expected}, not {ops}"

    def test_a_dropped_table_ends_the_feed(self, workload: Workload, open_feed: OpenFeed) -> None:
        """When a watched table is dropped, the feed says so with a TerminalError that names it, and never goes on.

        A feed that goes on without the table looks healthy while a consumer waits for rows that cannot come.
        """
        first, second = workload.tables
        workload.fill(first, 3)
        workload.fill(second, 3)
        feed = open_feed()
        feed.start()
        feed.scan()
        feed.catch_up()
        workload.writer.drop_table(first)
        workload.put(second, 4)
        with pytest.raises(TerminalError) as raised:
            feed.steps_until(lambda: False, what="the drop of a watched table was not noticed")
        bare = first.rpartition(".")[2].strip('"')
        assert bare in str(raised.value), f"the error does not name the table {bare}: {raised.value}"
