"""Few streaming queries start at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from cdc_core.engine.run_control import Stopped
from cdc_core.spark import start_turns
from cdc_core.spark.start_turns import StartTurns


def never() -> bool:
    return False


def test_the_next_query_starts_when_a_turn_ends() -> None:
    turns = StartTurns(2)
    first, _ = turns.take(stopped=never), turns.take(stopped=never)
    looked = threading.Event()

    def stopped() -> bool:
        looked.set()
        return False

    with ThreadPoolExecutor(1) as pool:
        third = pool.submit(turns.take, stopped=stopped)
        assert looked.wait(400)
        assert not third.done()
        first.end()
        first.end()  # changes nothing
        third.result(400)


def test_a_query_that_is_to_stop_waits_no_longer() -> None:
    turns = StartTurns(1)
    turns.take(stopped=never)
    with pytest.raises(Stopped):
        turns.take(stopped=iter([False, False, True]).__next__)


def test_a_query_that_does_not_get_on_holds_up_others_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(start_turns, "time", SimpleNamespace(monotonic=lambda: now))
    turns = StartTurns(1)
    slow = turns.take(stopped=never)
    with pytest.raises(Stopped):
        turns.take(stopped=iter([False, True]).__next__)
    now = 8.1
    other = turns.take(stopped=never)
    slow.end()  # late, and not the turn of the other
    with pytest.raises(Stopped):
        turns.take(stopped=iter([False, True]).__next__)
    other.end()
    turns.take(stopped=never)
