"""Promises about schema boundaries: what the feed does when a table changes, see `SchemaChangeRules`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cdc_conformance.promises import does_not_apply, requires
from cdc_conformance.rangefeeds.changes import Change, newest
from cdc_conformance.rangefeeds.driver import Feed
from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import Row, RowKey, Workload
from cdc_core import Op, TerminalError, Timestamp

State = dict[RowKey, Row]
_NEEDED = "the table changes while the feed runs"
_MOST_KILLS = 6


class SchemaBoundaries(RangefeedSuite):
    """Schema boundaries: `schema_change_policy` and `schema_change_events`."""

    @requires("schema_changes", _NEEDED)
    def test_no_resolved_mark_passes_a_schema_change_before_its_backfill(
        self, workload: Workload, open_feed: OpenFeed, first_table: str
    ) -> None:
        """At every resolved mark, the rows that arrived are those that the table held at some moment, column by column.

        A column with a default gives every row another value, but no change of the row is logged. If a mark passes such
        a change before all rows have followed, consumers trust a state that never existed.
        """
        workload.fill(first_table, 12)
        feed = open_feed(first_table, rows=4).scan()
        states = [dict(workload.rows)]

        def do(*statements: Callable[[], object]) -> None:
            for statement in statements:
                statement()
                states.append(dict(workload.rows))

        do(lambda: workload.put(first_table, 1), lambda: workload.delete(first_table, 2))
        do(lambda: _fill_column(workload, first_table))
        do(lambda: workload.put(first_table, 3, note="later"), lambda: workload.delete(first_table, 4))
        do(lambda: workload.put(first_table, 2), lambda: workload.drop_column(first_table, "extra"))
        do(lambda: workload.put(first_table, 5), lambda: workload.delete(first_table, 6))
        until, reached, resolved = feed.clock.now(), 0, Timestamp()
        for _ in feed.patiently(lambda: f"the commits up to {until} are not resolved"):
            if feed.resolved > resolved:
                resolved = feed.resolved
                reached = _place(feed, states, reached)
            if resolved >= until:
                break
            feed.step()

    @requires("schema_changes", _NEEDED)
    def test_a_schema_change_of_an_idle_table_is_noticed(self, workload: Workload, open_feed: OpenFeed) -> None:
        """An idle table gets a column with a default; nothing later is resolved before its rows follow.

        A source that learns the shape of a table from its rows notices the change with the next row, or never.
        """
        table, unwatched = workload.tables
        workload.fill(table, 10)
        feed = open_feed(table).scan()
        feed.catch_up()
        _fill_column(workload, table)
        expected = dict(workload.rows)
        workload.put(unwatched, 1)
        feed.catch_up()
        seen = _state(feed.changes, until=feed.resolved)
        assert seen == expected, f"{feed.resolved} was resolved, but {_difference(seen, [expected])}"

    @requires("schema_changes", _NEEDED)
    def test_a_backfill_is_complete_whatever_was_killed(
        self, workload: Workload, open_feed: OpenFeed, many_rows: int, first_table: str
    ) -> None:
        """Attempts are killed in the middle of a backfill, half of them before a step is saved; no row is missing.

        When the change is resolved, every row has its new value. If this fails, check that the token holds the rest of
        the backfill: everything that is not in the token is lost.
        """
        size = many_rows // 3
        workload.fill(first_table, size, note="x" * 200)
        feed = open_feed(first_table, rows=max(8, many_rows // 40), bytes_=16_000).scan()
        feed.catch_up()
        workload.put(first_table, 1)
        _fill_column(workload, first_table)
        states = [dict(workload.rows)]
        workload.put(first_table, 2)
        states.append(dict(workload.rows))
        until, kills = feed.clock.now(), 0
        for _ in feed.patiently("the change is not resolved"):
            if feed.resolved >= until and not feed.scanning:
                break
            plan = feed.plan()
            if plan is None:
                continue
            step = feed.execute(plan)
            killed = kills < _MOST_KILLS and any(change.op is Op.SCAN for change in step.changes)
            if not killed or kills % 2:
                feed.finish(step)
            if killed:
                feed.restart()
                kills += 1
                workload.put(first_table, kills * 17 % size + 1)
                states.append(dict(workload.rows))
        assert kills, "no step had rows of the backfill"
        _place(feed, states, 0)

    @requires("schema_changes", _NEEDED)
    def test_a_backfill_yields_every_row_that_exists(
        self, workload: Workload, open_feed: OpenFeed, first_table: str
    ) -> None:
        """After a column with a default was added, every row arrives with its new value, whenever it was inserted.

        If this fails, look at rows that were inserted after the initial scan.
        """
        workload.fill(first_table, 10)
        feed = open_feed(first_table).scan()
        workload.fill(first_table, 20, first=101)
        workload.delete(first_table, 3)
        _fill_column(workload, first_table)
        workload.put(first_table, 1)
        feed.catch_up()
        seen = _state(feed.changes)
        assert seen == workload.rows, f"after the backfill {_difference(seen, [workload.rows])}"

    @requires("schema_changes", _NEEDED)
    def test_a_backfill_is_later_than_everything_before(self, workload: Workload, open_feed: OpenFeed) -> None:
        """The rows of a backfill have the op SCAN, and `updated` above what was resolved and above earlier versions.

        Consumers keep the version of a row with the greatest `updated`, and skip what is at or below a resolved mark.
        """
        table = workload.tables[0]
        workload.fill(table, 10)
        feed = open_feed(table, rows=4).scan()
        scanned = len(feed.steps)
        workload.put(table, 1)
        _fill_column(workload, table)
        workload.put(table, 1)
        feed.catch_up()
        known: dict[RowKey, Timestamp] = {}
        resolved: Timestamp | None = None
        backfilled = 0
        for step in feed.steps:
            for change in step.changes:
                last = known.get(change.row_key)
                if change.op is Op.SCAN and step.number >= scanned:
                    backfilled += 1
                    resolved = resolved or feed.saves[step.number].resolved
                    assert change.updated > resolved, f"{resolved} was resolved before the backfill with {change}"
                    assert last is None or change.updated > last, f"after {last} for its key the backfill has {change}"
                known[change.row_key] = change.updated
        assert backfilled >= 10, (
            f"10 rows existed before the change, but {backfilled} rows arrived again with the op SCAN"
        )

    @requires("schema_changes", _NEEDED)
    def test_all_rows_follow_under_a_changed_key(
        self, workload: Workload, open_feed: OpenFeed, first_table: str
    ) -> None:
        """After a table got another key, all its rows have arrived under it before anything later is resolved.

        Rows under the old key remain at the destination, so a consumer keeps those with the new key alone.
        """
        workload.fill(first_table, 12)
        _fill_column(workload, first_table)
        feed = open_feed(first_table).scan()
        workload.put(first_table, 1)
        if not workload.writer.change_key(first_table, ("extra", "id")):
            does_not_apply("the source's writer cannot change a key: override SourceWriter.change_key")
        workload.put(first_table, 2)
        workload.delete(first_table, 3)
        feed.catch_up()
        workload.put(first_table, 4)
        workload.delete(first_table, 5)
        feed.catch_up()
        seen = _state([change for change in feed.changes if tuple(change.key or ()) == ("extra", "id")])
        assert seen == workload.rows, f"under the new key {_difference(seen, [workload.rows])}"

    @requires("schema_changes", _NEEDED)
    def test_policy_stop_ends_the_changefeed_at_the_change(self, workload: Workload, open_feed: OpenFeed) -> None:
        """With `schema_change_policy = "stop"`, all rows before the change arrive, then a TerminalError names it.

        It names the table and the column. Nothing after the change is resolved, so another policy can continue there.
        """
        table = workload.tables[0]
        workload.fill(table, 5)
        feed = open_feed(table, schema_change_policy="stop").scan()
        workload.put(table, 1)
        workload.put(table, 9)
        _fill_column(workload, table)
        workload.put(table, 1)
        with pytest.raises(TerminalError) as raised:
            feed.steps_until(lambda: False, what="the feed did not stop at the change of the table")
        for name in (table.rpartition(".")[2].strip('"'), "extra"):
            assert name in str(raised.value), f"the error does not name {name}: {raised.value}"
        arrived = {(change.id, change.n) for change in feed.changes}
        missing = {(1, 2), (9, 1)} - arrived
        assert not missing, f"rows from before the change did not arrive, as pairs of id and n: {sorted(missing)}"
        late = [
            change for change in feed.changes if (change.id, change.n) == (1, 3) and change.updated <= feed.resolved
        ]
        assert not late, f"{feed.resolved} was resolved, and with it a row from after the change: {late[0]}"

    @requires("schema_changes", _NEEDED)
    def test_policy_nobackfill_yields_no_rows_for_the_change(self, workload: Workload, open_feed: OpenFeed) -> None:
        """With `schema_change_policy = "nobackfill"`, only the versions that were committed arrive.

        Users who know the default of a new column do not need a second copy of a large table.
        """
        table = workload.tables[0]
        workload.fill(table, 5)
        feed = open_feed(table, schema_change_policy="nobackfill").scan()
        feed.catch_up()
        scanned = len(feed.changes)
        _fill_column(workload, table)
        workload.put(table, 1)
        feed.catch_up()
        found = [(change.id, change.n) for change in feed.changes[scanned:]]
        assert found == [(1, 2)], f"after the change only version 2 of row 1 may arrive, not these (id, n): {found}"

    @requires("schema_changes", _NEEDED)
    def test_schema_change_events_select_the_changes(
        self, workload: Workload, open_feed: OpenFeed, first_table: str
    ) -> None:
        """A new column that is null in every row causes a backfill only if `schema_change_events` says so.

        The values are "default" and "column_changes". A new column with a default causes a backfill in any case.
        """
        workload.fill(first_table, 5)
        feeds = {
            events: open_feed(first_table, schema_change_events=events) for events in ("default", "column_changes")
        }
        for feed in feeds.values():
            feed.scan()
        found: dict[str, list[int]] = {events: [] for events in feeds}
        for filled in (True, False):
            if filled:
                _fill_column(workload, first_table)
            else:
                workload.add_column(first_table, "empty")
            workload.put(first_table, 1)
            for events, feed in feeds.items():
                known = len(feed.changes)
                feed.catch_up()
                found[events].append(sum(change.op is Op.SCAN for change in feed.changes[known:]))
        expected = {"default": [5, 0], "column_changes": [5, 5]}
        assert found == expected, f"the number of rows that arrived again must be {expected}, not {found}"


def _fill_column(workload: Workload, table: str) -> None:
    """Add the column `extra`, which is not null in any row."""
    if not workload.add_filled_column(table, "extra", "filled"):
        does_not_apply(
            "the source's writer cannot add a column with a default: override SourceWriter.add_filled_column"
        )


def _state(changes: list[Change], *, until: Timestamp | None = None) -> State:
    """Return the rows that exist for a consumer, with the columns with which they arrived."""
    return {key: change.after or {} for key, change in newest(changes, until=until).items() if not change.deleted}


def _place(feed: Feed, states: list[State], reached: int) -> int:
    """Return the place, from *reached* on, of the state that a consumer has at the last resolved mark, or fail."""
    seen = _state(feed.changes, until=feed.resolved)
    for place in range(reached, len(states)):
        if states[place] == seen:
            return place
    pytest.fail(f"{feed.resolved} was resolved, but {_difference(seen, states[reached:])}")


def _difference(seen: State, states: list[State]) -> str:
    """Return what is wrong about *seen*, by the state that it is closest to."""

    def wrong(state: State) -> list[str]:
        return [
            f"row {key} is {seen.get(key)}, expected {state.get(key)}"
            for key in sorted({*seen, *state})
            if seen.get(key) != state.get(key)
        ]

    return min((wrong(state) for state in states), key=len)[0]
