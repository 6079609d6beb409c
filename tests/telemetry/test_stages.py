"""Where the time of a task goes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from cdc_testing.engine import counter_feed

from cdc_core import Timestamp
from cdc_core.config.parts import Parts
from cdc_core.telemetry.stages import ENCODE, SINK, SOURCE, Stages, stage, waited_for


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("cdc_core.telemetry.stages.time.monotonic", lambda: self.now)

    def takes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_each_moment_belongs_to_one_stage(clock: Clock) -> None:
    with Stages(SINK).measured() as stages:
        clock.takes(1)
        with stage(SOURCE):
            clock.takes(2)
            with stage(ENCODE):
                clock.takes(4)
            clock.takes(8)
        clock.takes(16)
    assert stages.seconds == {SOURCE: 10, ENCODE: 4, SINK: 17, "store": 0}


def test_a_stage_ends_with_its_error(clock: Clock) -> None:
    def fail() -> None:
        with stage(ENCODE):
            clock.takes(1)
            raise ValueError("no")

    with Stages(SINK).measured() as stages, pytest.raises(ValueError, match="no"):
        fail()
    assert stages.now == SINK
    assert stages.seconds[ENCODE] == 1


def test_waiting_for_rows_is_the_sources_time_and_what_is_done_with_them_is_not(clock: Clock) -> None:
    def rows() -> Iterator[int]:
        for n in range(3):
            clock.takes(1)
            yield n

    with Stages(SINK).measured() as stages:
        for _ in waited_for(rows()):
            clock.takes(10)
    assert (stages.seconds[SOURCE], stages.seconds[SINK]) == (3, 30)


def test_every_change_is_told_and_nothing_else() -> None:
    told: list[str] = []
    with Stages(SINK, changed=lambda stages: told.append(stages.now)).measured(), stage(SOURCE), stage(SOURCE):
        pass
    assert told == [SOURCE, SINK]


def test_what_another_thread_does_costs_the_task_no_time() -> None:
    told: list[str] = []

    def upload() -> None:
        with stage(ENCODE):
            told.append("done")

    with Stages(SINK, changed=lambda stages: told.append(stages.now)).measured():
        thread = threading.Thread(target=upload)
        thread.start()
        thread.join()
    assert told == ["done"]


def test_the_sink_of_a_job_has_an_encoder_that_is_timed(tmp_path_factory: pytest.TempPathFactory) -> None:
    sink = Parts(counter_feed(tmp_path_factory.mktemp("feed"))).open_sink()
    told: list[str] = []
    with Stages(SINK, changed=lambda stages: told.append(stages.now)).measured():
        sink.context.encoder.encode_resolved("t", Timestamp(1))
    assert told == [ENCODE, SINK]
