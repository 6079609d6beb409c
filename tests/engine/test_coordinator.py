from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from cdc_testing.engine import Journal, counter_feed
from cdc_testing.scripted import TABLE, Script

from cdc_core import ContractError, Flushed, SliceInfo, Span, SpanMark, Timestamp
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.attempt_channel import AttemptChannel
from cdc_core.engine.coordinator import Coordinator
from cdc_core.engine.resolved_marks import ResolvedMarks
from cdc_core.engine.slices import PlannedSlice, SliceReport
from cdc_core.errors import FencedError, TerminalRangefeedError
from cdc_core.options import Duration
from cdc_core.store.progress import DeadLetter, Progress, ProgressStore, store_url
from cdc_core.telemetry.metrics import METRICS

SPAN = Span(TABLE.name.full)


def coordinator(store: ProgressStore, script: Script, *, resolved_interval_s: float | None = 0.0) -> Coordinator:
    options = {"resolved": None if resolved_interval_s is None else Duration(resolved_interval_s)}
    feed = counter_feed(script.directory, options=options).for_attempt(feed_id="0" * 12, epoch=1)
    return Coordinator(feed, store, AttemptChannel(script.directory))


def step(number: int, *marks: SpanMark, slices: int = 2) -> Sequence[SliceReport]:
    return [
        SliceReport(
            planned=PlannedSlice(
                slice=None,
                info=SliceInfo(step=number, index=index, lower=Timestamp(1)),
                slices=slices,
                end={"n": number},
            ),
            marks=marks,
            rows=10,
            flushed=Flushed(messages=9, bytes=80, files=1),
            seconds=0.1,
        )
        for index in range(slices)
    ]


def mark(wall: int, *, span: Span = SPAN, resolved: bool = True) -> SpanMark:
    return SpanMark(span=span, timestamp=Timestamp(wall), resolved=resolved)


def saved(store: ProgressStore) -> Progress:
    progress = store.progress.load("t")
    assert progress is not None
    return progress


def test_a_finished_step_is_saved_then_resolved_then_released(store: ProgressStore, script: Script) -> None:
    turn = coordinator(store, script)
    turn.step_done(step(5, mark(5)))
    assert saved(store).token == {"n": 5}
    assert saved(store).frontier.high_water == Timestamp(5)
    assert Journal(script.directory).events == [["resolved", 1, 5], ["release", 5]]


def test_a_fenced_attempt_saves_emits_and_releases_nothing(store: ProgressStore, script: Script) -> None:
    turn = coordinator(store, script)
    store.changefeeds.begin_attempt("t")
    with pytest.raises(FencedError):
        turn.step_done(step(5, mark(5)))
    assert saved(store).token == {"n": 0}
    assert Journal(script.directory).events == []


def test_an_attempt_that_is_fenced_after_the_save_releases_nothing(
    store: ProgressStore, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Perhaps a move back was between.
    monkeypatch.setattr(AttemptChannel, "publish_saved", lambda *_: store.changefeeds.begin_attempt("t"))
    with pytest.raises(FencedError):
        coordinator(store, script, resolved_interval_s=None).step_done(step(5, mark(5)))
    assert saved(store).token == {"n": 5}
    assert Journal(script.directory).events == []


def marks_as(monkeypatch: pytest.MonkeyPatch, *, records: bool, routed: bool = False) -> None:
    """Have the journal get what a sink with these abilities gets."""

    def opened(feed: ResolvedChangefeed, store: ProgressStore) -> ResolvedMarks:
        sink = Parts(feed).open_resolved_sink()
        return ResolvedMarks(sink, store, name="t", epoch=1, records=records, routes=routed, routed=routed)

    monkeypatch.setattr("cdc_core.engine.coordinator.open_resolved_marks", opened)


@pytest.mark.parametrize("records", [True, False])
@pytest.mark.parametrize("resolved_interval_s", [0.0, 1e-9])
def test_an_attempt_that_is_fenced_while_it_emits_a_mark_releases_nothing(
    store: ProgressStore, script: Script, monkeypatch: pytest.MonkeyPatch, resolved_interval_s: float, records: bool
) -> None:
    turn = coordinator(store, script, resolved_interval_s=resolved_interval_s)
    marks_as(monkeypatch, records=records)
    honest = ResolvedMarks.emit

    def emit(*told: Any, **more: Any) -> None:
        honest(*told, **more)
        store.changefeeds.begin_attempt("t")

    monkeypatch.setattr(ResolvedMarks, "emit", emit)
    with pytest.raises(FencedError):
        turn.step_done(step(5, mark(5)))
    assert Journal(script.directory).events == [["resolved", 1, 5]]


@pytest.fixture
def transactions() -> Iterator[list[sa.Connection]]:
    """The transactions that have begun, of every store of this process."""
    begun: list[sa.Connection] = []
    note = begun.append
    sa.event.listen(sa.Engine, "begin", note)
    yield begun
    sa.event.remove(sa.Engine, "begin", note)


@pytest.mark.parametrize("routed", [True, False])
@pytest.mark.parametrize("records", [True, False])
@pytest.mark.parametrize("resolved_interval_s", [None, 0.0, 1e-9])
def test_a_step_takes_at_most_three_transactions_of_the_store(
    store: ProgressStore,
    script: Script,
    transactions: list[sa.Connection],
    monkeypatch: pytest.MonkeyPatch,
    resolved_interval_s: float | None,
    records: bool,
    routed: bool,
) -> None:
    turn = coordinator(store, script, resolved_interval_s=resolved_interval_s)
    marks_as(monkeypatch, records=records, routed=routed)
    turn.step_done(step(1, mark(1)))
    letter = DeadLetter(table=TABLE.name.full, key="[7]", updated=Timestamp(2), stage="encode", error="no")
    for number, letters in ((2, ()), (3, (letter,))):
        transactions.clear()
        reports = [replace(report, dead_letters=letters) for report in step(number, mark(number))]
        turn.step_done(reports)
        assert len(transactions) == (2 if resolved_interval_s is None else 3)
    events = Journal(script.directory).events
    assert events[-1] == ["release", 3]
    assert (["resolved", 1, 3] in events) == (resolved_interval_s is not None)


def test_which_mark_was_emitted_is_known_one_step_later_at_most(store: ProgressStore, script: Script) -> None:
    for number in (1, 2):  # a process for each step
        turn = coordinator(store, script)
        turn.step_done(step(number, mark(number)))
        assert saved(store).emitted == Timestamp(number)
    for number in (3, 4):
        turn.step_done(step(number, mark(number)))
        assert saved(store).emitted == Timestamp(number - 1)


@pytest.mark.parametrize("alone", [True, False])
def test_resolved_marks_keep_their_distance_also_in_a_process_for_each_step(
    store: ProgressStore, script: Script, alone: bool
) -> None:
    turn = coordinator(store, script, resolved_interval_s=1.0)
    for number, wall in enumerate([10, 500_000_000, 1_000_000_010, 1_900_000_000], start=1):
        (turn if alone else coordinator(store, script, resolved_interval_s=1.0)).step_done(step(number, mark(wall)))
    assert Journal(script.directory).resolved == [10, 1_000_000_010]


def test_a_source_that_cannot_release_now_does_not_stop_the_changefeed(store: ProgressStore, script: Script) -> None:
    turn = coordinator(store, script)
    script.order("release", "RetryableRangefeedError slot is active")
    turn.step_done(step(5, mark(5)))
    turn.step_done(step(6, mark(6)))
    assert Journal(script.directory).released == [6]
    assert saved(store).counters["release_failures"] == 1


def test_a_source_that_can_never_release_stops_the_changefeed(store: ProgressStore, script: Script) -> None:
    script.order("release", "TerminalRangefeedError slot is gone")
    with pytest.raises(TerminalRangefeedError, match="slot is gone"):
        coordinator(store, script).step_done(step(5, mark(5)))


def test_counters_are_totals_over_all_runs(store: ProgressStore, script: Script) -> None:
    coordinator(store, script).step_done(step(5, mark(5)))
    coordinator(store, script).step_done(step(6, mark(6)))
    counters = saved(store).counters
    assert {name: counters[name] for name in ("steps", "rows", "messages", "bytes", "files")} == {
        "steps": 2,
        "rows": 40,
        "messages": 36,
        "bytes": 320,
        "files": 4,
    }


@pytest.mark.parametrize("steps", [1, 2])
def test_the_gauges_of_the_source_are_saved(store: ProgressStore, script: Script, steps: int) -> None:
    turn = coordinator(store, script)
    for number in range(1, steps + 1):
        turn.step_done(step(number, mark(number)))
    assert saved(store).counters["source.retained_bytes"] == 7.0


def test_failed_releases_are_counted_over_processes_and_in_a_row(store: ProgressStore, script: Script) -> None:
    def failures() -> tuple[float | None, float | None]:
        counters = saved(store).counters
        return counters.get("release_failures"), counters.get("releases_failed")

    for number in (5, 6):
        script.order("release", "RetryableRangefeedError slot is active")
        coordinator(store, script).step_done(step(number, mark(number)))
    assert failures() == (2, 2)
    coordinator(store, script).step_done(step(7, mark(7)))
    assert failures() == (2, None)


def test_what_a_coordinator_holds_does_not_grow_with_the_steps(store: ProgressStore, script: Script) -> None:
    turn = coordinator(store, script)
    turn.step_done(step(1, mark(1)))
    buckets = {key for metric in METRICS for key in (*metric.bucket_keys, metric.sum_key)}
    names = set(saved(store).counters) - buckets
    for number in range(2, 50):
        turn.step_done(step(number, mark(number)))
    assert set(saved(store).counters) - buckets == names | {"source.retained_bytes", "measured_at"}
    assert len(list(saved(store).frontier)) == 1


def test_where_the_last_slices_ran_is_told_at_once_and_then_every_ten_seconds(
    store: ProgressStore, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    turn, channel = coordinator(store, script), AttemptChannel(script.directory)

    def told(number: int, host: str, *, at: float, slices: int = 2) -> dict[str, int]:
        now[0] = at
        turn.step_done([replace(report, host=host) for report in step(number, mark(number), slices=slices)])
        return channel.hosts()

    assert told(1, "", at=1000) == {}, "in the driver's process there is nothing to tell"
    assert told(2, "a", at=1001) == {"a": 2}
    assert told(3, "b", at=1010) == {"a": 2}
    assert told(4, "c", at=1011, slices=98) == {"b": 2, "c": 98}


def test_instances_in_turn_tell_where_the_last_slices_of_all_ran(store: ProgressStore, script: Script) -> None:
    channel = AttemptChannel(script.directory)
    for number, host in enumerate("aab", start=1):
        reports = step(number, mark(number))
        coordinator(store, script).step_done([replace(report, host=host) for report in reports])
    assert channel.hosts() == {"a": 4, "b": 2}


def test_a_step_counts_when_it_cannot_be_told_where_it_ran(store: ProgressStore, script: Script) -> None:
    turn, channel = coordinator(store, script), AttemptChannel(script.directory)
    (script.directory / f"hosts.{os.getpid()}").mkdir()
    turn.step_done([replace(report, host="a") for report in step(1, mark(1))])
    assert (saved(store).counters["steps"], channel.hosts()) == (1, {})


def test_steps_may_be_taken_by_instances_in_turn(store: ProgressStore, script: Script) -> None:
    """Spark lends its commit processes to all changefeeds of a driver."""
    turns = [coordinator(store, script) for _ in range(2)]
    for number in range(6):
        turns[number % 2].step_done(step(number, mark(10 * (number + 1))))
    assert saved(store).counters["steps"] == 6
    assert saved(store).counters["rows"] == 6 * 2 * 10
    assert saved(store).frontier.high_water == Timestamp(60)
    assert Journal(script.directory).resolved == [10, 20, 30, 40, 50, 60]


def test_a_run_without_saved_progress_is_refused(script: Script) -> None:
    empty = ProgressStore(store_url(script.directory))
    with pytest.raises(ContractError, match="without saved progress"):
        coordinator(empty, script).step_done(step(0, mark(10)))
