from __future__ import annotations

import base64
import dataclasses
import pickle
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pytest
from cdc_testing.engine import counter_feed
from cdc_testing.scripted import TABLE, CounterPlanner, Script
from pyspark.errors import PySparkException

from cdc_core import Span, Timestamp
from cdc_core.engine import planner
from cdc_core.engine.attempt import Attempt, WarmUp, open_attempt
from cdc_core.engine.attempt_channel import AttemptChannel
from cdc_core.engine.attempt_config import AttemptConfig, MaskedError
from cdc_core.engine.fencing import is_idle
from cdc_core.engine.packing import BEGIN, END, FAILED, IDLE, ROWS, unpack
from cdc_core.engine.planner import Offset
from cdc_core.errors import FencedError, RetryableRangefeedError, from_wire
from cdc_core.frontier import Frontier
from cdc_core.options import Duration
from cdc_core.spark import query
from cdc_core.spark.query import warm_up
from cdc_core.store.progress import Progress, ProgressStore


def config_of(script: Script, store: ProgressStore, **feed: Any) -> AttemptConfig:
    run_dir = script.directory / "t.run" / "1"
    run_dir.mkdir(parents=True, exist_ok=True)
    changefeed = counter_feed(script.directory, **feed).for_attempt(
        feed_id="0" * 12, epoch=1, state=store.url, parallelism=2
    )
    return AttemptConfig(feed=changefeed, state_dir=script.directory, run_dir=run_dir, start={"n": 0})


@pytest.fixture
def config(script: Script, store: ProgressStore) -> AttemptConfig:
    return config_of(script, store)


@pytest.fixture
def attempt(config: AttemptConfig) -> Attempt:
    return Attempt(config)


def save(store: ProgressStore, n: int) -> None:
    frontier = Frontier([Span(TABLE.name.full)], Timestamp(n))
    store.progress.save("t", 1, Progress(token={"n": n}, frontier=frontier, latest=Timestamp(n)))


def test_the_start_token_is_the_same_however_often_one_asks(
    attempt: Attempt, store: ProgressStore, script: Script
) -> None:
    first = attempt.first_offset
    save(store, 5000)
    assert attempt.first_offset == first == {"step": -1, "token": {"n": 0}}


def test_a_step_goes_to_where_the_rangefeed_advances(attempt: Attempt, store: ProgressStore) -> None:
    first = attempt.next_offset(attempt.first_offset)
    assert first == {"step": 0, "token": {"n": 1000}}
    save(store, 1000)
    assert attempt.next_offset(first) == {"step": 1, "token": {"n": 2000}}


def test_steps_obey_the_limit_of_the_changefeed(script: Script, store: ProgressStore) -> None:
    attempt = Attempt(config_of(script, store, options={"max_step_rows": 7}))
    assert attempt.next_offset(attempt.first_offset)["token"] == {"n": 7}


def test_rows_of_a_step_come_after_all_that_was_marked_before(attempt: Attempt, store: ProgressStore) -> None:
    start = attempt.next_offset(attempt.first_offset)
    save(store, 1000)
    tasks = attempt.tasks(start, attempt.next_offset(start))
    assert [task[0].info.lower for task in tasks] == [Timestamp(1000).next()] * 2


def test_a_stop_keeps_the_planner_where_it_is(attempt: Attempt, config: AttemptConfig) -> None:
    start = attempt.next_offset(attempt.first_offset)
    config.channel.request_stop()
    assert attempt.next_offset(start) == start
    assert config.channel.stop_acknowledged


def test_a_stop_is_not_acknowledged_by_planning_slices(attempt: Attempt, config: AttemptConfig) -> None:
    start = attempt.first_offset
    end = attempt.next_offset(start)
    config.channel.request_stop()
    assert len(attempt.tasks(start, end)) == 2
    assert not config.channel.stop_acknowledged


def batches_of(read: Iterable[tuple[int, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    return (batch for _, batch in read)


def test_an_idle_source_plans_no_step(script: Script, store: ProgressStore) -> None:
    attempt = Attempt(config_of(script, store, total=10))
    save(store, 10)
    last = {"step": 3, "token": {"n": 11}}
    assert attempt.next_offset(last) == last
    [task] = attempt.tasks(last, last)
    assert [batch["kind"].to_pylist() for _, batch in attempt.read(0, task)] == [["idle"]]


def test_a_slice_is_read_between_its_begin_and_its_end(attempt: Attempt, config: AttemptConfig) -> None:
    start = attempt.first_offset
    tasks = attempt.tasks(start, attempt.next_offset(start))
    elsewhere = Attempt(config)
    passed = [pickle.loads(pickle.dumps(task)) for task in tasks]
    kinds = [
        [kind for kind, _ in unpack(batches_of(elsewhere.read(number, task)))] for number, task in enumerate(passed)
    ]
    assert kinds == [[BEGIN, *[ROWS] * 5, END]] * 2
    assert is_idle(config.tasks_lock)


def test_a_read_is_at_work_until_its_end(attempt: Attempt, config: AttemptConfig) -> None:
    start = attempt.first_offset
    [task, _] = attempt.tasks(start, attempt.next_offset(start))
    rows = attempt.read(0, task)
    next(rows)
    assert not is_idle(config.tasks_lock)
    rows.close()
    assert is_idle(config.tasks_lock)


def test_a_read_that_fails_tells_why_instead_of_costing_a_task_attempt(attempt: Attempt, script: Script) -> None:
    start = attempt.first_offset
    [task, _] = attempt.tasks(start, attempt.next_offset(start))
    script.order("read-late", "RetryableRangefeedError too busy retry_after_s=9")
    *_, (kind, value) = unpack(batches_of(attempt.read(0, task)))
    assert kind == FAILED
    error = from_wire(value["error"])
    assert isinstance(error, RetryableRangefeedError)
    assert error.retry_after_s == 9


def again(script: Script, store: ProgressStore, **feed: Any) -> Attempt:
    """The attempt of the next run, whatever became of the one before."""
    config = config_of(script, store, **feed)
    epoch = store.changefeeds.begin_attempt("t")
    return Attempt(dataclasses.replace(config, feed=dataclasses.replace(config.feed, epoch=epoch)))


def planned(attempt: Attempt, *, steps: int = 1) -> Offset:
    """Plan the first steps of a run, of which none is saved but by the test; return where the last one ends."""
    offset = attempt.first_offset
    for _ in range(steps):
        start, offset = offset, attempt.next_offset(offset)
        attempt.tasks(start, offset)
    return offset


def planned_by(attempt: Attempt) -> int | None:
    """Plan the first step of a run; return the epoch of the attempt that planned it first, None for this one."""
    start = attempt.first_offset
    (epoch,) = {task[0].info.planned_by for task in attempt.tasks(start, attempt.next_offset(start))}
    return epoch


def test_a_step_that_another_run_left_unfinished_is_repeated_first(
    attempt: Attempt, script: Script, store: ProgressStore
) -> None:
    planned(attempt)
    second = again(script, store, rows_per_step=600)
    assert planned_by(second) is None  # another option decides otherwise
    third = again(script, store, rows_per_step=600)
    start = third.first_offset
    end = third.next_offset(start)
    assert end == {"step": 0, "token": {"n": 600}}
    infos = [task[0].info for task in third.tasks(start, end)]
    assert [(info.step, info.index, info.planned_by) for info in infos] == [(0, 0, 2), (0, 1, 2)]
    store.progress.save("t", 3, Progress(token={"n": 600}, latest=Timestamp(600)))
    following = third.next_offset(end)
    assert following == {"step": 1, "token": {"n": 1200}}
    (info, _) = [task[0].info for task in third.tasks(end, following)]
    assert (info.step, info.planned_by) == (1, None)


def test_a_repeat_that_dies_too_is_repeated_under_the_name_of_the_first_run(
    attempt: Attempt, script: Script, store: ProgressStore
) -> None:
    planned(attempt)
    for _ in range(3):
        assert planned_by(again(script, store)) == 1


def test_a_finished_step_is_not_repeated(attempt: Attempt, script: Script, store: ProgressStore) -> None:
    planned(attempt)
    save(store, 1000)
    config = dataclasses.replace(config_of(script, store), start={"n": 1000})
    epoch = store.changefeeds.begin_attempt("t")
    following = Attempt(dataclasses.replace(config, feed=dataclasses.replace(config.feed, epoch=epoch)))
    assert planned(following) == {"step": 0, "token": {"n": 2000}}


@pytest.mark.parametrize(
    "change",
    [
        {"slices": 3},
        {"options": {"max_step_rows": 999}},
        {"options": {"diff": True}},
        {"destination": "journal://elsewhere"},
    ],
    ids=["slices", "limit", "before", "destination"],
)
def test_a_step_that_would_hold_other_slices_is_planned_anew(
    attempt: Attempt, script: Script, store: ProgressStore, change: dict[str, Any]
) -> None:
    planned(attempt)
    assert planned_by(again(script, store, **change)) is None


def test_what_decides_nothing_may_change_between_a_step_and_its_repeat(
    attempt: Attempt, script: Script, store: ProgressStore
) -> None:
    planned(attempt)
    options = {"resolved": None, "max_retry_backoff": Duration(9.0), "on_error": "pause"}
    assert planned_by(again(script, store, options=options)) == 1


def test_a_source_may_decline_to_repeat(attempt: Attempt, script: Script, store: ProgressStore) -> None:
    planned(attempt)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CounterPlanner, "repeat", lambda *_, **__: None)
        assert planned_by(again(script, store)) is None


def test_a_plan_that_is_never_finished_is_given_up(attempt: Attempt, script: Script, store: ProgressStore) -> None:
    planned(attempt)
    for _ in range(10):
        assert planned_by(again(script, store)) == 1
    assert planned(again(script, store)) == {"step": 0, "token": {"n": 1000}}


def test_the_saved_plan_holds_no_secret_in_any_form(script: Script, store: ProgressStore) -> None:
    passwords = ["hunter2/of=the:source", "changed+since then"]
    jobs = [{"sources": (f"counter://user:{one}@host",), "plain_secrets": frozenset({one})} for one in passwords]
    planned(again(script, store, **jobs[0]))
    assert planned_by(again(script, store, **jobs[1])) == 2
    with closing(sqlite3.connect(next(script.directory.glob("*.sqlite")))) as database:
        dump = "\n".join(database.iterdump())
    assert "counter" in dump
    forms = [form for one in passwords for form in (one, quote(one), quote(one, safe=""), quote_plus(one))]
    forms += [base64.b64encode(one.encode()).decode() for one in passwords]
    assert [form for form in forms if form in dump] == []


def test_a_fenced_attempt_plans_no_step(attempt: Attempt, store: ProgressStore) -> None:
    store.changefeeds.begin_attempt("t")
    with pytest.raises(MaskedError) as raised:
        planned(attempt)
    assert isinstance(from_wire(str(raised.value)), FencedError)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(planner, "time", clock)
    return clock


TEN_SECONDS = 10_000_000_000


def paced(script: Script, store: ProgressStore) -> Attempt:
    """An attempt at a source that is a multiple of ten seconds long, with 30 s between two steps."""
    config = config_of(script, store, rows_per_step=TEN_SECONDS, total=10 * TEN_SECONDS)
    return Attempt(dataclasses.replace(config, feed=dataclasses.replace(config.feed, min_checkpoint_frequency_s=30.0)))


def test_steps_keep_the_distance_that_the_changefeed_asks_for(
    script: Script, store: ProgressStore, clock: Clock
) -> None:
    attempt = paced(script, store)
    start = {"step": 4, "token": {"n": 9 * TEN_SECONDS}}
    save(store, 9 * TEN_SECONDS)  # ten seconds behind, so there are twenty left to wait
    assert attempt.next_offset(start) == start
    clock.now_s += 19.9
    assert attempt.next_offset(start) == start
    clock.now_s += 0.2
    assert attempt.next_offset(start)["step"] == 5


def test_a_stop_does_not_wait_for_the_next_step(script: Script, store: ProgressStore, clock: Clock) -> None:
    attempt = paced(script, store)
    start = {"step": 4, "token": {"n": 9 * TEN_SECONDS}}
    save(store, 9 * TEN_SECONDS)
    assert attempt.next_offset(start) == start
    driver = AttemptChannel(script.directory / "t.run" / "1")
    driver.request_stop()
    assert attempt.next_offset(start) == start
    assert driver.stop_acknowledged


def test_an_attempt_is_made_from_one_option(config: AttemptConfig) -> None:
    warming = dataclasses.replace(config, warm_up=True)
    for each, cls in ((config, Attempt), (warming, WarmUp)):
        assert type(open_attempt(each.to_option())) is cls


def test_a_warm_up_loads_the_source_and_reads_nothing(config: AttemptConfig, script: Script) -> None:
    script.order("read", "RuntimeError not in a warm-up")
    attempt = WarmUp(dataclasses.replace(config, warm_up=True))
    start = attempt.first_offset
    end = attempt.next_offset(start)
    assert attempt.next_offset(end) == end
    tasks = attempt.tasks(start, end)
    assert len(tasks) == config.feed.parallelism
    assert [kind for kind, _ in unpack(batches_of(attempt.read(0, tasks[0])))] == [IDLE]


def test_on_one_host_the_warm_up_loads_here_and_needs_no_spark(config: AttemptConfig) -> None:
    warm_up(None, dataclasses.replace(config, warm_up=True), stopped=lambda: False)  # type: ignore[arg-type]


class _Warming:
    """A query that fails because a worker was late, as often as it is told."""

    def __init__(self, late: int) -> None:
        self.left = late

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        self.left -= 1
        if self.left >= 0:
            raise PySparkException("Python worker failed to connect back.")
        return True


@pytest.mark.parametrize(("late", "outcome"), [(2, nullcontext()), (3, pytest.raises(PySparkException))])
def test_a_warm_up_is_repeated_while_a_host_is_too_busy_for_a_worker(
    config: AttemptConfig, monkeypatch: pytest.MonkeyPatch, late: int, outcome: AbstractContextManager[Any]
) -> None:
    started = _Warming(late)
    monkeypatch.setattr(query, "start_query", lambda *_: started)
    spark = {"master": "spark://127.0.0.1:7077"}
    warming = dataclasses.replace(config, feed=dataclasses.replace(config.feed, spark=spark), warm_up=True)
    with outcome:
        warm_up(None, warming, stopped=lambda: False)  # type: ignore[arg-type]
    assert late - started.left == 3  # calls
