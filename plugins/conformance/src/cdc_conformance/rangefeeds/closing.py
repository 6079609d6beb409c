"""Promises about `close`, `drop` and `created`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from cdc_conformance.promises import does_not_apply, requires
from cdc_conformance.rangefeeds.driver import Feed
from cdc_conformance.rangefeeds.suite import MakeChangefeed, OpenFeed, RangefeedSuite
from cdc_conformance.side_effects import Resources
from cdc_conformance.workload import Workload
from cdc_core import RangefeedRegistration

__all__ = ["Closing"]


class Closing(RangefeedSuite):
    """`close`, `drop` and `created`."""

    def test_close_may_be_called_twice(
        self, workload: Workload, open_feed: OpenFeed, make_changefeed: MakeChangefeed
    ) -> None:
        """`close` of each part may be called twice, and on an instance that was never used."""
        changefeed = make_changefeed()
        for open_ in (
            changefeed.open_rangefeed,
            changefeed.open_planner,
            changefeed.open_reader,
            changefeed.open_history,
        ):
            unused = open_()
            unused.close()
            unused.close()
        feed = open_feed()
        feed.start()
        workload.run(3, settle=True)
        feed.catch_up()
        feed.close()
        feed.close()

    def test_nothing_stays_open_after_close(self, workload: Workload, open_feed: OpenFeed) -> None:
        """After `close` the process has no more files, sockets and threads than before, also after an abandoned read.

        One process runs many attempts, and servers limit the number of connections.
        """
        workload.fill(workload.tables[0], 5)

        def run() -> Feed:
            feed = open_feed().scan()
            workload.put(workload.tables[0], 1)
            plan = feed.next_plan()
            with closing(feed.parts.open_reader()) as reader:
                next(reader.read(plan.slices[0]), None)
            feed.catch_up()
            feed.close()
            return feed

        run()
        before = Resources.now()
        feed = run()
        for _ in feed.patiently(lambda: f"still open after close(): {before.more()}"):
            if not before.more():
                break

    def test_drop_may_be_repeated(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`drop` may be called twice, and for a changefeed that was never started.

        An interrupted cancellation is repeated.
        """
        never = open_feed()
        never.drop()
        feed = open_feed()
        feed.start()
        workload.run(3, settle=True)
        feed.catch_up()
        feed.close()
        feed.drop()
        feed.drop()

    @requires("inspection", "the test must see what was created")
    def test_drop_removes_everything_created(
        self, workload: Workload, open_feed: OpenFeed, created: Callable[[], object]
    ) -> None:
        """After `drop` the source is as it was before the changefeed's first start.

        A forgotten object keeps history and fills the disk of the database.
        """
        before = created()
        feed = open_feed()
        feed.start()
        feed.step()
        workload.run(3)
        feed.step()
        assert created() != before, "a running changefeed created nothing; check that the fixture `created` sees it"
        feed.close()
        feed.drop()
        assert created() == before, f"after drop() {created()} exists, before the start it was {before}"

    @requires("inspection", "the test must see what was created")
    def test_a_temporary_run_leaves_nothing_behind(
        self,
        registration: RangefeedRegistration,
        workload: Workload,
        open_feed: OpenFeed,
        make_changefeed: MakeChangefeed,
        created: Callable[[], object],
    ) -> None:
        """With `temporary` in the context, the source is as before when the parts are closed, and no row is missing.

        `cdc watch` and `cdc preview` only look. What they leave behind would never be dropped.
        """
        if not registration.temporary:
            does_not_apply("its registration does not say that it can run without leaving something behind")
        before = created()
        workload.fill(workload.tables[0], 5)
        feed = open_feed(changefeed=replace(make_changefeed(), temporary=True)).scan()
        workload.run(10, settle=True)
        feed.catch_up()
        missing = sorted(workload.rows.keys() - {change.row_key for change in feed.changes})
        assert not missing, f"{len(missing)} rows did not arrive; the first is {missing[0]}"
        feed.close()
        assert created() == before, f"after close() {created()} exists, before the start it was {before}"

    def test_created_lists_the_objects_of_every_changefeed(
        self, workload: Workload, open_feed: OpenFeed, make_changefeed: MakeChangefeed
    ) -> None:
        """If `created` returns a list, it has the objects of every changefeed of the source, not only its own.

        `cdc drop --orphans` uses it to find leftovers.
        """
        with closing(make_changefeed().open_rangefeed()) as stranger:
            before = stranger.created()
            if before is None:
                does_not_apply("the rangefeed does not list what changefeeds have created")
            feed = open_feed()
            feed.start()
            workload.run(3)
            listed = stranger.created() or ()
            more = {entry.name for entry in listed} - {entry.name for entry in before}
            assert more, "another changefeed has started, and created() does not list what it created"
            assert len({entry.name for entry in listed}) == len(listed), f"a name is listed twice: {listed}"
