"""How long an attempt waits for what earlier ones may still be doing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.engine import counter_feed
from cdc_testing.scripted import JournalDestination

from cdc_core.engine.fencing import CHECK_VALID_S
from cdc_core.engine.run_control import RunControl, Stopped
from cdc_core.engine.takeover import PreviousAttempts

CALLS = "waiting for calls of the earlier node to end"


class Rig:
    def __init__(self, directory: Path, *, after_unclean: bool) -> None:
        self.feed = counter_feed(directory)
        self.control = RunControl()
        self.phases: list[str] = []
        self.previous = PreviousAttempts(
            "t", directory, after_unclean=after_unclean, say=self.say, control=self.control
        )

    def say(self, **changes: Any) -> None:
        self.phases.append(changes["phase"])


@pytest.mark.parametrize(
    ("after_unclean", "scans", "moved"), [(False, True, False), (False, False, True), (True, False, False)]
)
def test_only_a_scan_or_a_move_after_another_node_waits(
    tmp_path: Path, *, after_unclean: bool, scans: bool, moved: bool
) -> None:
    rig = Rig(tmp_path, after_unclean=after_unclean)
    rig.previous.fenced()
    rig.previous.await_calls(rig.feed, scans=scans, moved=moved)
    assert rig.phases == []


@pytest.mark.parametrize(("scans", "moved"), [(True, False), (False, True)])
def test_the_time_counts_from_the_first_attempt_that_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, scans: bool, moved: bool
) -> None:
    monkeypatch.setattr(JournalDestination, "longest_call_s", lambda _: 0.3)
    rig = Rig(tmp_path, after_unclean=True)
    began = time.monotonic()
    rig.previous.fenced()
    rig.previous.await_calls(rig.feed, scans=scans, moved=moved)
    assert time.monotonic() - began >= 0.3 + CHECK_VALID_S
    assert set(rig.phases) == {CALLS}
    rig.phases.clear()
    rig.previous.fenced()
    rig.previous.await_calls(rig.feed, scans=scans, moved=moved)
    assert rig.phases == []


def test_a_stop_ends_the_wait(tmp_path: Path) -> None:
    rig = Rig(tmp_path, after_unclean=True)
    rig.previous.fenced()
    rig.control.stop.set()
    with pytest.raises(Stopped):
        rig.previous.await_calls(rig.feed, scans=True, moved=False)
    assert rig.phases == [CALLS]
