"""A few seeds of what `make nemesis` plays many of."""

from __future__ import annotations

import pytest
from cdc_testing.nemesis_rig import PLACES, NemesisRig, command
from cdc_testing.nemesis_script import script_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("source", "sink"), PLACES[:2])  # each source and each sink once
def test_the_engine_keeps_its_promises_whatever_happens(rig: NemesisRig, source: str, sink: str) -> None:
    outcome = rig.play(script_of(11, source=source, sink=sink))
    assert outcome.failures == [], f"{outcome.log_path} has the events; again: {command(outcome.script)}"
    assert outcome.rows > 0
    assert outcome.marks > 0


@pytest.mark.parametrize(("source", "sink"), PLACES)
def test_so_it_does_on_threads(thread_rig: NemesisRig, source: str, sink: str) -> None:
    outcome = thread_rig.play(script_of(12, source=source, sink=sink))
    assert outcome.failures == [], f"{outcome.log_path} has the events; again: {command(outcome.script)} --threads"
    assert outcome.rows > 0
    assert outcome.marks > 0
