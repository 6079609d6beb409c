"""Promises about crashes and outages: an attempt needs only the progress that was saved."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.rangefeeds.changes import assert_all_there
from cdc_conformance.rangefeeds.driver import Feed
from cdc_conformance.rangefeeds.suite import Created, Disturbance, OpenFeed, RangefeedSuite
from cdc_conformance.side_effects import failure_of
from cdc_conformance.workload import Workload
from cdc_core import RetryableError, Token


class CrashError(Exception):
    """Simulates the death of the process."""


class Restarts(RangefeedSuite):
    """Crashes and restarts: an attempt needs only the progress that was saved."""

    def test_restarts_lose_no_rows(self, workload: Workload, open_feed: OpenFeed, many_rows: int) -> None:
        """Attempts are killed every few steps, also before a step is saved; the newest version of every row arrives.

        The kills continue from the initial scan into the log. If this fails, check that the token holds the rest of the
        scan: everything that is not in the token is lost.
        """
        small, large = workload.tables
        workload.fill(small, 3)
        size = many_rows // 3
        workload.fill(large, size, note="x" * 200)
        feed = open_feed(bytes_=16_000, start=True)
        for attempt, turn in _killed(feed, attempts=9):
            workload.put(large, (attempt * 3 + turn) * 17 % size + 1)
            workload.put(small, attempt % 5 + 1)
        feed.catch_up()
        assert_all_there(feed.changes, workload.rows)

    def test_restarts_keep_the_order_of_keys(self, workload: Workload, open_feed: OpenFeed, first_table: str) -> None:
        """Attempts are killed before their rows are saved; no version of a key arrives first after a newer one.

        More is written between the attempts. After a restart versions may repeat, but a version that never arrived
        before must be newer than all others of its key.
        """
        for first in range(1, 121, 20):
            workload.fill(first_table, 20, first=first, note="x" * 200)
        feed = open_feed(first_table, bytes_=16_000, start=True)
        for _ in _killed(feed, attempts=7):
            for id_ in range(1, 111, 17):
                workload.put(first_table, id_, note="y" * 200)
        feed.catch_up()
        seen: dict[object, set[int]] = {}
        for change in feed.changes:
            assert change.n is not None
            known = seen.setdefault(change.row_key, set())
            assert change.n in known or change.n > max(known, default=0), (
                f"version {change.n} arrived for the first time after version {max(known)}: {change}"
            )
            known.add(change.n)

    def test_a_step_can_be_planned_again(self, workload: Workload, open_feed: OpenFeed, first_table: str) -> None:
        """A planner that planned a step gets the same start again, and plans the step again without missing a row.

        The engine decides where a step begins. A planner that continues where its last plan ended skips rows that were
        never read.
        """
        workload.fill(first_table, 30)
        feed = open_feed(rows=10, start=True)
        feed.next_plan()
        feed.next_plan()
        feed.scan()
        workload.put(first_table, 31)
        workload.put(first_table, 32)
        for _ in feed.patiently("no step has the committed rows"):
            plan = feed.next_plan()
            if {change.id for slice_ in plan.slices for change in feed.read(slice_).changes} & {31, 32}:
                break  # without saving the step
            feed.finish(feed.execute(plan))  # it has only what others wrote to the history
        workload.put(first_table, 33)
        feed.catch_up()
        assert_all_there(feed.changes, workload.rows)

    def test_a_crash_during_start_is_recovered(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A start after a crash, with the saved intent, acts like the first start, initial scan included.

        The driver dies right after the intent was saved, and again after everything was created but not saved. The next
        start must find what was created, and use or remove it.
        """
        workload.fill(workload.tables[0], 5)
        feed = open_feed()

        def save_and_die(token: Token) -> None:
            feed.save_intent(token)
            raise CrashError

        try:
            feed.rangefeed.start(None, save_and_die)
        except CrashError:
            feed.kill()
        workload.put(workload.tables[0], 1)
        feed.rangefeed.start(None if feed.saved is None else feed.saved.token, feed.save_intent)
        feed.kill()
        feed.start()
        workload.put(workload.tables[0], 6)
        feed.scan()
        feed.catch_up()
        assert_all_there(feed.changes, workload.rows)

    @requires("inspection", "the test must be able to list what was created")
    def test_nothing_is_created_before_the_intent_is_saved(self, open_feed: OpenFeed, created: Created) -> None:
        """If the intent cannot be saved, `start` has created nothing on the source.

        Otherwise, nothing can clean up: a forgotten replication slot fills the disk of the database.
        """
        before = created()
        feed = open_feed()

        def die(_: Token) -> None:
            raise CrashError

        with pytest.raises(CrashError):
            feed.rangefeed.start(None, die)
        feed.kill()
        assert created() == before, f"{created()} exists, although the intent to create it was never saved"

    def test_tokens_are_plain_json(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Tokens and intents do not change when they are written as JSON and read back.

        They are saved as JSON and compared with `==`. So they must not contain tuples, numbers as keys, or NaN.
        """
        workload.fill(workload.tables[0], 30)
        feed = open_feed(rows=10)
        tokens: list[Token] = []
        tokens.append(feed.rangefeed.start(None, tokens.append))
        feed.start()
        while feed.scanning:
            tokens.append(feed.planner.advance(feed.progress.token, after=feed.progress.latest, limit=feed.limit))
            feed.step()
        workload.run(3, settle=True)
        tokens.append(feed.planner.advance(feed.progress.token, after=feed.progress.latest, limit=feed.limit))
        for token in tokens:
            again = json.loads(json.dumps(token, allow_nan=False))
            assert again == token, f"the token {token} is {again} after it was written as JSON and read back"

    @requires("secret", "the source's URI must contain a secret")
    def test_tokens_hold_no_secrets(self, workload: Workload, open_feed: OpenFeed, secret: str) -> None:
        """No token holds a secret of the source's URI: tokens are saved, logged and displayed."""
        workload.fill(workload.tables[0], 5)
        feed = open_feed()
        intents: list[Token] = []
        feed.rangefeed.start(None, intents.append)
        feed.scan()
        workload.run(3, settle=True)
        feed.catch_up()
        for token in [*intents, *(progress.token for progress in feed.saves)]:
            assert secret not in json.dumps(token), f"a token contains a secret: its fields are {sorted(token)}"


def _killed(feed: Feed, *, attempts: int) -> Iterator[tuple[int, int]]:
    """Yield attempt and turn before each step. Kill attempts until the scan is complete, at least so many.

    An attempt has one to three steps, and the third is not saved.
    """
    for attempt in range(60):
        if not feed.scanning and attempt >= attempts:
            break
        for turn in range(attempt % 3 + 1):
            yield attempt, turn
            step = feed.execute(feed.next_plan())
            if turn < 2:
                feed.finish(step, release=False)
        feed.restart()


class Outages(RangefeedSuite):
    """A source that is unreachable for a while."""

    @requires("disturbance", "the test must cut off the source")
    def test_an_outage_is_a_retryable_error(
        self, workload: Workload, open_feed: OpenFeed, disturbance: Disturbance
    ) -> None:
        """While the source is unreachable, `now`, `advance` and `read` raise RetryableError.

        The engine waits and repeats the step. Other errors of `cdc_core` would stop the changefeed, and the engine does
        not know errors of the client library.
        """
        workload.fill(workload.tables[0], 5)
        feed = open_feed().scan()
        workload.put(workload.tables[0], 1)
        plan = feed.next_plan()
        calls: dict[str, Callable[[], object]] = {
            "now": feed.clock.now,
            "advance": lambda: feed.planner.advance(feed.progress.token, after=feed.progress.latest, limit=feed.limit),
            "read": lambda: feed.read(plan.slices[0]),
        }
        with disturbance.broken():
            for name, call in calls.items():
                error = failure_of(call)
                assert isinstance(error, RetryableError), (
                    f"{name}() must raise a RetryableError while the source is unreachable, not {error!r}"
                )

    @requires("disturbance", "the test must cut off the source")
    def test_an_outage_loses_no_rows(self, workload: Workload, open_feed: OpenFeed, disturbance: Disturbance) -> None:
        """The source is unreachable in the middle of a step; after a restart from saved progress every row arrives."""
        table = workload.tables[0]
        workload.fill(table, 5)
        feed = open_feed().scan()
        for id_ in (1, 2, 3):
            workload.put(table, id_)
            plan = feed.next_plan()
            workload.put(table, 4)
            with disturbance.broken(), suppress(Exception):
                feed.execute(plan)
            feed.restart()
        feed.catch_up()
        assert_all_there(feed.changes, workload.rows)
