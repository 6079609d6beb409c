"""What the status of a run says of its counters and of the tasks that are at work."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.engine import counter_feed

from cdc_core.engine.attempt_channel import COORDINATOR, SLICE, AttemptChannel
from cdc_core.engine.status_sampler import StatusSampler
from cdc_core.frontier import Frontier
from cdc_core.rangefeed_values import ScanProgress
from cdc_core.store.progress import Progress
from cdc_core.telemetry.stages import ENCODE, SINK, SOURCE, STORE, stage


class Clock:
    """Time for the watch and for the tasks that it sees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Watched:
    """A run whose counters a test moves."""

    def __init__(self, run_dir: Path, clock: Clock, *, local: bool = True, frequency_s: float = 0.0) -> None:
        self.channel = AttemptChannel(run_dir)
        self.clock = clock
        self.counters: dict[str, float] = {}
        self.waiting = 0
        self.asked = 0
        self.channel.create()
        self.watch = StatusSampler(
            counter_feed(run_dir, min_checkpoint_frequency_s=frequency_s),
            self.channel,
            local=local,
            count_dead_letters=self._count,
        )

    def _count(self) -> int:
        self.asked += 1
        return self.waiting

    def step(self, *, rows: int, source: float = 0.0, encode: float = 0.0, sink: float = 0.0, aside: int = 0) -> None:
        for name, amount in (
            ("steps", 1),
            ("rows", rows),
            ("dead_letters", aside),
            ("seconds.source", source),
            ("seconds.encode", encode),
            ("seconds.sink", sink),
        ):
            self.counters[name] = self.counters.get(name, 0) + amount

    def sample(self, *, after_s: float = 0.0, scan: ScanProgress | None = None) -> dict[str, Any]:
        """Look every half second until *after_s* have passed; return what the last look says."""
        for _ in range(int(after_s * 2)):
            self.clock.now += 0.5
            self._sample(scan)
        return self._sample(scan)

    def _sample(self, scan: ScanProgress | None) -> dict[str, Any]:
        return self.watch.sample(Progress(token={}, frontier=Frontier(()), counters=dict(self.counters)), scan)


@pytest.fixture
def watched(tmp_path: Path, clock: Clock) -> Watched:
    return Watched(tmp_path / "3", clock)


def test_shares_are_those_of_the_steps_of_the_last_ten_seconds(watched: Watched) -> None:
    watched.step(rows=1000, source=100)  # of earlier runs
    watched.sample()
    watched.step(rows=10, sink=8)
    watched.sample(after_s=8)
    watched.step(rows=10, source=1, encode=3, sink=4)
    assert watched.sample(after_s=1)["shares"] == {"source": 1 / 16, "encode": 3 / 16, "sink": 12 / 16}
    assert watched.sample(after_s=4)["shares"] == {"source": 1 / 8, "encode": 3 / 8, "sink": 4 / 8}
    assert watched.sample(after_s=20)["shares"] == {}


def test_shares_of_a_long_step_are_those_of_its_tasks_so_far(watched: Watched) -> None:
    watched.sample()
    with watched.channel.at_stages(SLICE, first=SINK):
        watched.sample(after_s=6)
        with stage(ENCODE):
            watched.sample()
            assert watched.sample(after_s=2)["shares"] == {"source": 0, "encode": 1 / 4, "sink": 3 / 4}


def test_a_sink_that_is_stuck_is_named_with_how_long_it_is(watched: Watched) -> None:
    with watched.channel.at_stages(SLICE, first=SINK):
        watched.sample()
        assert watched.sample(after_s=2)["waiting_on"] is None
        stuck = watched.sample(after_s=61)
    assert (stuck["waiting_on"], stuck["waiting_on_s"]) == ("sink 'journal'", 63)
    assert set(watched.watch.sample_tasks().values()) == {None}


def test_a_source_is_silent_from_when_a_task_waits_for_it_until_it_answers(watched: Watched) -> None:
    assert watched.sample()["source_silent_since"] is None
    with watched.channel.at_stages(SLICE, first=SOURCE):
        watched.sample()
        assert watched.sample(after_s=2)["source_silent_since"] is None
        since = watched.sample(after_s=5)["source_silent_since"]
        assert time.time() - 8 < since < time.time() - 2
        assert watched.sample(after_s=5)["source_silent_since"] == since
    assert watched.sample(after_s=1)["source_silent_since"] == since  # another attempt proves nothing
    watched.step(rows=0)
    assert watched.sample(after_s=1)["source_silent_since"] is None


def test_rows_of_a_source_end_its_silence_before_their_step_is_saved(watched: Watched) -> None:
    with watched.channel.at_stages(SLICE, first=SOURCE):
        watched.sample()
        assert watched.sample(after_s=5)["source_silent_since"] is not None
        with stage(ENCODE):
            watched.sample(after_s=1)
        with stage(SINK):
            assert watched.sample(after_s=1)["source_silent_since"] is None


def test_what_a_sink_repeats_by_itself_is_told_with_its_reason_and_the_next_attempt(watched: Watched) -> None:
    with watched.channel.at_stages(SLICE, first=SINK) as stages:
        watched.sample()
        with stages.repeating("it answers 503: é" + "x" * 1000, next_attempt_s=100):
            assert watched.sample(after_s=2)["waiting_for"] is None  # it may well be over in a moment
            said = watched.sample(after_s=2)
        quiet = watched.sample()
    assert (said["waiting_on"], said["waiting_for"][:20]) == ("sink 'journal'", "it answers 503: éxxx")
    assert 90 < said["next_attempt_s"] <= 100
    assert (quiet["waiting_on"], quiet["waiting_for"]) == ("sink 'journal'", None)


def test_telling_of_a_repeat_moves_no_share(watched: Watched) -> None:
    with watched.channel.at_stages(SLICE, first=SINK) as stages:
        watched.sample()
        with stage(ENCODE):
            watched.sample(after_s=4)
        watched.sample()
        watched.sample(after_s=4)
        with stages.repeating("it hangs", next_attempt_s=1):
            assert watched.sample()["shares"] == {"source": 0, "encode": 1 / 2, "sink": 1 / 2}


def test_of_tasks_that_are_stuck_one_that_says_why_is_told(watched: Watched) -> None:
    with watched.channel.at_stages(SLICE, first=SINK):
        watched.sample(after_s=1)
        with (
            watched.channel.at_stages(COORDINATOR, first=SINK) as stages,
            stages.repeating("it hangs", next_attempt_s=1),
        ):
            assert watched.sample(after_s=10)["waiting_for"] == "it hangs"


def test_what_a_call_repeated_ends_with_it(watched: Watched) -> None:
    with (
        watched.channel.at_stages(SLICE, first=SINK) as stages,
        stages.repeating("it hangs", next_attempt_s=1),
        stage(SOURCE),
    ):
        assert watched.sample(after_s=10)["waiting_for"] is None


def test_the_coordinator_may_be_stuck_too(watched: Watched) -> None:
    with watched.channel.at_stages(COORDINATOR, first=STORE):
        assert watched.sample(after_s=5)["waiting_on"] == "the progress store"
        with stage(SINK):
            assert watched.sample(after_s=5)["waiting_on"] == "sink 'journal'"


def test_without_rows_it_waits_for_changes(watched: Watched) -> None:
    watched.sample()
    watched.step(rows=10, sink=1)
    assert watched.sample(after_s=1)["waiting_on"] is None
    watched.step(rows=0)
    assert watched.sample(after_s=1)["waiting_on"] is None
    assert watched.sample(after_s=2)["waiting_on"] == "changes"
    watched.step(rows=10, sink=1)
    assert watched.sample()["waiting_on"] is None
    assert watched.sample(after_s=9)["waiting_on"] is None
    assert watched.sample(after_s=1)["waiting_on"] == "changes"  # a source need not make steps without rows


def test_a_long_step_that_just_ended_is_no_waiting_for_changes(watched: Watched) -> None:
    watched.sample(after_s=7)
    with watched.channel.at_stages(SLICE, first=SINK):
        watched.sample(after_s=5)
    assert watched.sample(after_s=1)["waiting_on"] is None  # its rows are about to be saved
    assert watched.sample(after_s=10)["waiting_on"] == "changes"


def test_steps_that_are_far_apart_are_what_changes_may_wait_for(tmp_path: Path, clock: Clock) -> None:
    watched = Watched(tmp_path / "3", clock, frequency_s=30.0)
    watched.step(rows=10)
    watched.sample()
    assert watched.sample(after_s=10)["waiting_on"] == "changes (a step every 30s: min_checkpoint_frequency)"


def test_what_is_kept_does_not_grow_with_the_time_between_steps(tmp_path: Path, clock: Clock) -> None:
    watched = Watched(tmp_path / "3", clock, frequency_s=300.0)
    for _ in range(3):
        watched.step(rows=600)
        found = watched.sample(after_s=290)
    assert found["rows_per_s"] == pytest.approx(2.0, rel=0.05)
    assert len(watched.watch._samples) <= 110


def test_a_scan_or_a_long_step_is_no_waiting_for_changes(watched: Watched) -> None:
    assert watched.sample(after_s=5, scan=ScanProgress(done=1, total=2, unit="chunks"))["waiting_on"] is None
    with watched.channel.at_stages(SLICE, first=SINK):
        watched.sample(after_s=2)
        with stage(ENCODE):
            assert watched.sample(after_s=2)["waiting_on"] is None


def test_on_a_cluster_only_a_step_without_rows_says_that_there_are_none(tmp_path: Path, clock: Clock) -> None:
    watched = Watched(tmp_path / "3", clock, local=False)
    watched.step(rows=10)
    assert watched.sample(after_s=30)["waiting_on"] is None
    watched.step(rows=0)
    assert watched.sample()["waiting_on"] == "changes"


def test_releases_that_fail_are_told_until_one_succeeds(watched: Watched) -> None:
    assert watched.sample()["releases_failed"] == 0
    watched.counters.update(release_failures=5, releases_failed=3)
    assert watched.sample()["releases_failed"] == 3
    del watched.counters["releases_failed"]
    assert watched.sample()["releases_failed"] == 0


def test_dead_letters_are_counted_at_the_start_and_when_there_are_more(watched: Watched) -> None:
    watched.waiting = 2
    assert watched.sample(after_s=5)["dead_letters"] == 2
    assert watched.asked == 1
    watched.step(rows=10, aside=1)
    watched.waiting = 3
    assert watched.sample(after_s=5)["dead_letters"] == 3
    assert watched.asked == 2
