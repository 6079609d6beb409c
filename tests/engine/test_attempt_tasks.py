from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cdc_testing.engine import Journal, counter_feed
from cdc_testing.scripted import JournalResolvedSink, Script
from cdc_testing.written import read

from cdc_core import Slice, SliceInfo, Timestamp
from cdc_core.config.parts import Parts
from cdc_core.engine import attempt, fencing
from cdc_core.engine.aggregator import ReaderDiedError
from cdc_core.engine.attempt import Attempt, WarmUp
from cdc_core.engine.attempt_config import AttemptConfig, MaskedError
from cdc_core.engine.fencing import FencedSink, is_idle
from cdc_core.engine.host_requirements import StoreFile
from cdc_core.engine.packing import IDLE, note
from cdc_core.engine.slices import PlannedSlice, TaskMessage
from cdc_core.engine.worker_cache import WorkerCache
from cdc_core.errors import ConfigError, ContractError, FencedError, RetryableSinkError, TerminalSinkError, from_wire
from cdc_core.store.progress import ProgressStore


@pytest.fixture(autouse=True)
def empty_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "_sinks", WorkerCache())
    monkeypatch.setattr(attempt, "_epoch_checks", WorkerCache())
    monkeypatch.setattr(attempt, "_coordinators", WorkerCache(size=1))


@pytest.fixture
def config(script: Script, store: ProgressStore) -> AttemptConfig:
    run_dir = script.directory / "t.run" / "1"
    run_dir.mkdir(parents=True)
    feed = counter_feed(script.directory).for_attempt(feed_id="0" * 12, epoch=1, state=store.url, parallelism=2)
    return AttemptConfig(feed=feed, state_dir=script.directory, run_dir=run_dir, start={"n": 0})


def slice_of(config: AttemptConfig, index: int, *, step: int = 0, slices: int = 2) -> Iterator[pa.RecordBatch]:
    first, last = step * 100, step * 100 + 100
    reader = Parts(config.feed).open_reader()
    lower = Timestamp(first + 1)
    planned = PlannedSlice(
        slice=Slice(lower=lower, payload=(first, last, index, slices)),
        info=SliceInfo(step=step, index=index, lower=lower),
        slices=slices,
        end={"n": last},
    )
    return read(reader, planned)


def write(config: AttemptConfig, index: int = 0, *, task_attempt: int = 0, **changes: Any) -> TaskMessage:
    return Attempt(config).write(slice_of(config, index, **changes), task_attempt=task_attempt)


def saved(store: ProgressStore) -> int:
    progress = store.progress.load("t")
    assert progress is not None
    return int(progress.token["n"])


def test_a_step_is_saved_after_all_of_its_slices_were_flushed(config: AttemptConfig, store: ProgressStore) -> None:
    messages = [write(config, 0), write(config, 1)]
    assert saved(store) == 0
    Attempt(config).commit(messages)
    assert saved(store) == 100


def test_the_sink_stays_open_between_steps(config: AttemptConfig, script: Script) -> None:
    for step in range(3):
        write(config, step=step)
    assert len(Journal(script.directory).of("open")) == 1


def test_a_newer_run_opens_its_own_sink(config: AttemptConfig, script: Script, store: ProgressStore) -> None:
    write(config)
    store.changefeeds.begin_attempt("t")
    write(dataclasses.replace(config, feed=dataclasses.replace(config.feed, epoch=2)))
    assert [event[1] for event in Journal(script.directory).of("open")] == [1, 2]


@pytest.mark.parametrize("call", ["begin", "emit", "flush"])
def test_an_attempt_that_was_overtaken_does_not_reach_the_sink(
    call: str, config: AttemptConfig, store: ProgressStore, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_on = getattr(FencedSink, call)

    def overtaken(sink: FencedSink, *arguments: Any) -> Any:
        store.changefeeds.begin_attempt("t")
        return passed_on(sink, *arguments)

    monkeypatch.setattr(fencing, "CHECK_VALID_S", 0.0)
    monkeypatch.setattr(FencedSink, call, overtaken)
    message = write(config)
    assert isinstance(from_wire(message.failure or ""), FencedError)
    assert Journal(script.directory).of("rows") == []


def test_a_host_without_the_file_of_the_store_emits_nothing(
    config: AttemptConfig, script: Script, tmp_path: Path
) -> None:
    elsewhere = StoreFile(path=str(tmp_path / "elsewhere" / "progress.sqlite"), identity="another machine/1/2")
    requirements = dataclasses.replace(config.requirements, store=elsewhere)
    error = from_wire(write(dataclasses.replace(config, requirements=requirements)).failure or "")
    assert isinstance(error, ConfigError)
    assert error.repairable, "it does not fail for good what runs on other hosts"
    assert Journal(script.directory).of("rows") == []
    assert not (tmp_path / "elsewhere").exists()


def test_a_sink_that_failed_is_not_used_again(config: AttemptConfig, script: Script) -> None:
    script.order("flush", "RetryableSinkError busy")
    write(config)
    write(config)
    assert len(Journal(script.directory).of("open")) == 2


def test_a_failing_slice_is_told_and_costs_no_task_attempt(config: AttemptConfig, script: Script) -> None:
    script.order("flush", "RetryableSinkError busy retry_after_s=7")
    message = write(config)
    assert not message.reports
    error = from_wire(message.failure or "")
    assert isinstance(error, RetryableSinkError)
    assert error.retry_after_s == 7


def test_a_failed_slice_fails_the_commit_and_saves_nothing(
    config: AttemptConfig, script: Script, store: ProgressStore
) -> None:
    good = write(config, 0)
    script.order("flush", "TerminalSinkError no such bucket")
    bad = write(config, 1)
    with pytest.raises(MaskedError) as raised:
        Attempt(config).commit([good, bad])
    assert isinstance(from_wire(str(raised.value)), TerminalSinkError)
    assert saved(store) == 0


def test_a_slice_whose_reader_died_costs_a_task_attempt(config: AttemptConfig, script: Script) -> None:
    with pytest.raises(ReaderDiedError):
        Attempt(config).write(iter(list(slice_of(config, 0))[:-1]))
    assert not Journal(script.directory).of("rows")


def test_a_sink_is_told_which_attempt_a_slice_is(config: AttemptConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[SliceInfo] = []
    with attempt._sinks.use(config.key, Parts(config.feed).open_sink) as sink:
        monkeypatch.setattr(sink, "begin", told.append)
    write(config, task_attempt=2)
    assert [info.task_attempt for info in told] == [2]


def test_a_task_of_a_replaced_run_writes_nothing(config: AttemptConfig, script: Script) -> None:
    (config.run_dir.parent / "2").mkdir()
    assert "was superseded" in (write(config).failure or "")
    assert not Journal(script.directory).events


def test_a_commit_of_a_replaced_run_saves_and_emits_nothing(
    config: AttemptConfig, script: Script, store: ProgressStore
) -> None:
    messages = [write(config, 0), write(config, 1)]
    (config.run_dir.parent / "2").mkdir()
    before = store.progress.load("t")
    with pytest.raises(MaskedError, match="was superseded"):
        Attempt(config).commit(messages)
    assert store.progress.load("t") == before
    assert Journal(script.directory).resolved == []


def test_a_commit_is_at_work_until_its_end(config: AttemptConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    idle: list[bool] = []
    emit = JournalResolvedSink.emit_resolved

    def emit_resolved(sink: JournalResolvedSink, timestamp: Timestamp) -> None:
        idle.append(is_idle(config.tasks_lock))
        emit(sink, timestamp)

    messages = [write(config, 0), write(config, 1)]
    monkeypatch.setattr(JournalResolvedSink, "emit_resolved", emit_resolved)
    Attempt(config).commit(messages)
    assert idle == [False]
    assert is_idle(config.tasks_lock)


def test_a_write_is_at_work_until_its_end(config: AttemptConfig) -> None:
    states = []

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in slice_of(config, 0):
            states.append(is_idle(config.tasks_lock))
            yield batch

    Attempt(config).write(watched())
    assert len(states) > 1
    assert not any(states)
    assert is_idle(config.tasks_lock)


@pytest.mark.parametrize("messages", [[], [None], [None, None]], ids=["no partition", "one None", "two"])
def test_messages_that_know_nothing_save_nothing(
    messages: list[None], config: AttemptConfig, store: ProgressStore
) -> None:
    with pytest.raises(MaskedError) as raised:
        Attempt(config).commit(messages)
    assert isinstance(from_wire(str(raised.value)), ContractError)
    assert saved(store) == 0


def test_a_batch_in_which_there_was_nothing_to_do_saves_nothing_and_fails_nothing(
    config: AttemptConfig, script: Script, store: ProgressStore
) -> None:
    message = Attempt(config).write(iter([note(IDLE, {})]))
    Attempt(config).commit([message])
    assert saved(store) == 0
    assert not Journal(script.directory).of("rows")


def test_a_fenced_run_is_told_apart(config: AttemptConfig, store: ProgressStore) -> None:
    messages = [write(config, 0), write(config, 1)]
    store.changefeeds.begin_attempt("t")
    with pytest.raises(MaskedError) as raised:
        Attempt(config).commit(messages)
    assert isinstance(from_wire(str(raised.value)), FencedError)


def test_a_coordinator_that_failed_starts_again_from_the_store(
    config: AttemptConfig, script: Script, store: ProgressStore
) -> None:
    messages = [write(config, 0), write(config, 1)]
    script.order("resolved", "RetryableSinkError busy")
    with pytest.raises(MaskedError):
        Attempt(config).commit(messages)
    Attempt(config).commit([write(config, 0, step=1), write(config, 1, step=1)])
    assert saved(store) == 200
    assert Journal(script.directory).resolved == [200]


def test_a_warm_up_loads_the_sink_and_reports_nothing(
    config: AttemptConfig, script: Script, store: ProgressStore
) -> None:
    warm_up = WarmUp(dataclasses.replace(config, warm_up=True))
    warm_up.commit([warm_up.write([note(IDLE, {})])])
    assert Journal(script.directory).events == []
    assert saved(store) == 0


def exchanging(config: AttemptConfig) -> AttemptConfig:
    options = dataclasses.replace(config.feed.options, delivery_tasks=2)
    return dataclasses.replace(config, feed=dataclasses.replace(config.feed, options=options))


def test_a_task_delivers_all_slices_that_reach_it_whatever_is_idle_between_them(config: AttemptConfig) -> None:
    config, idle = exchanging(config), [note(IDLE, {})]
    message = Attempt(config).write([*idle, *idle, *slice_of(config, 0), *idle, *slice_of(config, 1), *idle])
    assert [report.planned.info.index for report in message.reports] == [0, 1]
    assert Attempt(config).write([*idle, *idle]) == TaskMessage(idle=True)


def test_a_task_that_gets_nothing_at_all_fails(config: AttemptConfig) -> None:
    assert "died before its first row" in (Attempt(exchanging(config)).write([]).failure or "")


def test_a_task_that_reads_for_others_shows_whether_it_waits_for_the_source(
    config: AttemptConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = exchanging(config)
    (config.run_dir / "activity").mkdir()
    channel, stages = config.channel, []

    def reading(*_: Any, **__: Any) -> Iterator[tuple[int, pa.RecordBatch]]:
        stages.append([activity.stage for activity in channel.activities()])
        yield 0, note(IDLE, {})

    monkeypatch.setattr(attempt, "read_slice", reading)
    lower = Timestamp(1)
    planned = PlannedSlice(
        slice=Slice(lower=lower, payload=()), info=SliceInfo(step=0, index=0, lower=lower), slices=2, end={}
    )
    for _ in Attempt(config).read(0, (planned,)):
        stages.append([activity.stage for activity in channel.activities()])
    assert stages == [["source"], ["sink"]]
