"""A run that takes over from a node that did not end cleanly."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from cdc_testing.engine import stop_runs
from cdc_testing.scripted import CounterRangefeed, JournalDestination

from cdc_core import ScanProgress
from cdc_core.telemetry.status import Status

if TYPE_CHECKING:
    Engine = Any

WAITING = "waiting for calls of the earlier node to end"


@pytest.fixture(autouse=True)
def _scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CounterRangefeed, "scan_progress", lambda *_: ScanProgress(done=0, total=1, unit="chunks"))


def test_a_scan_begins_when_calls_of_the_earlier_node_have_ended(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JournalDestination, "longest_call_s", lambda _: 3.0)
    first = time.monotonic()

    def watch(status: Status) -> None:
        if status.phase == WAITING:
            assert engine.store.load("t") is not None, "the wait comes after the start token"
            assert engine.journal.of("rows") == []
        elif status.phase == "running" and engine.phases.count("running") == 1:
            assert time.monotonic() - first > 3.0

    assert engine.run(total=100, after_unclean=True, watch=watch) == 0
    assert engine.phases.index(WAITING) < engine.phases.index("running")
    assert engine.journal.numbers() == set(range(1, 101))


def test_the_wait_can_be_stopped(engine: Engine) -> None:
    def watch(status: Status) -> None:
        if status.phase == WAITING:
            stop_runs()

    assert engine.run(after_unclean=True, watch=watch) == 0
    assert "running" not in engine.phases
