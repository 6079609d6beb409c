"""Promises about crashes: what was saved is all that a new run needs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.rangefeeds.changes import newest
from cdc_conformance.rangefeeds.driver import Feed
from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import Token

__all__ = ["Restarting"]


class CrashError(Exception):
    """The process died here."""


class Restarting(RangefeedSuite):
    def test_a_restart_after_any_step_loses_nothing(
        self, workload: Workload, open_feed: OpenFeed, many_rows: int
    ) -> None:
        """Runs are killed after one step or two, or in the third before it was saved, through the scan of a large and
        a small table and on into the log; in the end the consumer has every row in its newest version.

        What a token does not say is lost. Look at the parts of the scan that are still to do.
        """
        small, large = workload.tables
        workload.fill(small, 3)
        size = many_rows // 3
        workload.fill(large, size, note="x" * 200)
        feed = open_feed(bytes_=16_000)
        feed.start()
        for run in range(60):
            if not feed.scanning and run > 8:
                break
            for turn in range(run % 3 + 1):
                workload.put(large, (run * 3 + turn) * 17 % size + 1)
                workload.put(small, run % 5 + 1)
                step = feed.execute(feed.next_plan())
                if turn < 2:
                    feed.finish(step, release=False)
            feed.restart()
        feed.catch_up()
        _assert_all_there(feed, workload)

    def test_order_holds_over_restarts(self, workload: Workload, open_feed: OpenFeed) -> None:
        """The run is killed after rows were handed out and before they were saved, then more is written; of every key
        no older version that never came before follows a newer one.

        The same may come again after a restart, and older ones before it; nothing new may be older.
        """
        table = workload.tables[0]
        for first in range(1, 121, 20):
            workload.fill(table, 20, first=first, note="x" * 200)
        feed = open_feed(table, bytes_=16_000)
        feed.start()
        for run in range(60):
            if not feed.scanning and run > 6:
                break
            for turn in range(run % 3 + 1):
                for id_ in range(1, 111, 17):
                    workload.put(table, id_, note="y" * 200)
                step = feed.execute(feed.next_plan())
                if turn < 2:
                    feed.finish(step, release=False)
            feed.restart()
        feed.catch_up()
        seen: dict[object, set[int]] = {}
        for change in feed.changes:
            assert change.n is not None
            known = seen.setdefault(change.row_key, set())
            assert change.n in known or change.n > max(known, default=0), (
                f"version {change.n} came for the first time after version {max(known)}: {change}"
            )
            known.add(change.n)

    def test_a_step_can_be_planned_again(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A step is planned, and its start is handed to the same planner once more; nothing of it is missed.

        Where a step begins is what the engine says. A planner that goes on from where it has planned to skips what was
        never read.
        """
        table = workload.tables[0]
        workload.fill(table, 30)
        feed = open_feed(rows=10)
        feed.start()
        feed.next_plan()
        feed.next_plan()
        feed.scan()
        workload.put(table, 31)
        workload.put(table, 32)
        for _ in feed.patiently("no step has the rows that were committed"):
            plan = feed.next_plan()
            if {change.id for slice_ in plan.slices for change in feed.read(slice_).changes} >= {31, 32}:
                break  # and nothing of it is saved
        workload.put(table, 33)
        feed.catch_up()
        _assert_all_there(feed, workload)

    def test_a_crash_while_starting_is_recovered(self, workload: Workload, open_feed: OpenFeed) -> None:
        """The driver dies right after the intent was saved, and again when all is created but not yet saved; the next
        start, given the intent, begins as if it were the first.

        What a run before has created must be found and used or removed, and the initial scan must not be forgotten.
        """
        workload.fill(workload.tables[0], 5)
        feed = open_feed()

        def save_and_die(token: Token) -> None:
            feed.save_intent(token)
            raise CrashError

        try:
            feed.driver.start(None, save_and_die)
        except CrashError:
            feed.kill()
        workload.put(workload.tables[0], 1)
        feed.driver.start(None if feed.saved is None else feed.saved.token, feed.save_intent)
        feed.kill()
        feed.start()
        workload.put(workload.tables[0], 6)
        feed.scan()
        feed.catch_up()
        _assert_all_there(feed, workload)

    @requires("inspection", "it must be seen what was created")
    def test_nothing_is_created_before_the_intent_is_saved(
        self, open_feed: OpenFeed, created: Callable[[], object]
    ) -> None:
        """When the intent cannot be saved, nothing stands on the source that was not there before.

        Otherwise nobody knows of what is left there: a forgotten replication slot fills the disk of the database.
        """
        before = created()
        feed = open_feed()

        def die(_: Token) -> None:
            raise CrashError

        with pytest.raises(CrashError):
            feed.driver.start(None, die)
        feed.kill()
        assert created() == before, f"{created()} is there, although the intent to create it was never saved"

    def test_tokens_are_plain_json(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A token is the same after it was written as JSON and read again, intents too.

        It is saved as JSON, and compared with `==` to see whether anything has happened: no tuples, no keys that are
        numbers, no NaN.
        """
        workload.fill(workload.tables[0], 30)
        feed = open_feed(rows=10)
        tokens: list[Token] = []
        tokens.append(feed.driver.start(None, tokens.append))
        feed.start()
        while feed.scanning:
            tokens.append(feed.planner.advance(feed.progress.token, after=feed.progress.latest, limit=feed.limit))
            feed.step()
        workload.run(3)
        workload.settle()
        tokens.append(feed.planner.advance(feed.progress.token, after=feed.progress.latest, limit=feed.limit))
        for token in tokens:
            again = json.loads(json.dumps(token, allow_nan=False))
            assert again == token, f"a token is {token}, and after a way through JSON {again}"

    @requires("secret", "there must be something to hide")
    def test_tokens_hold_no_secret(self, workload: Workload, open_feed: OpenFeed, secret: str) -> None:
        """No token holds a secret of the source's URI: tokens are saved, logged and shown to people."""
        workload.fill(workload.tables[0], 5)
        feed = open_feed()
        intents: list[Token] = []
        feed.driver.start(None, intents.append)
        feed.start()
        feed.scan()
        workload.run(3)
        workload.settle()
        feed.catch_up()
        for token in [*intents, *(progress.token for progress in feed.saves)]:
            assert secret not in json.dumps(token), f"a token holds a secret: its fields are {sorted(token)}"


def _assert_all_there(feed: Feed, workload: Workload) -> None:
    found = newest(feed.changes)
    for key, row in workload.rows.items():
        arrived = found.get(key)
        n = None if arrived is None else arrived.n
        assert n == row["n"], f"row {key} is at version {row['n']}, but the newest that arrived is {arrived}"
