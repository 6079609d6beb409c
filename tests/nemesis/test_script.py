"""What a seed decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import is_dataclass

import pytest
from cdc_testing import nemesis_events
from cdc_testing.engine_bugs import BUGS
from cdc_testing.nemesis_events import Fault, Pause, Read, Resume
from cdc_testing.nemesis_faults import POINTS
from cdc_testing.nemesis_rig import PLACES, scripts_for
from cdc_testing.nemesis_script import script_of

SOURCES = ("simulated", "postgres")


@pytest.mark.parametrize(("source", "sink"), PLACES)
def test_a_seed_means_the_same_script_every_time(source: str, sink: str) -> None:
    scripts = [script_of(seed, source=source, sink=sink) for seed in (1, 1, 2)]
    assert repr(scripts[0]) == repr(scripts[1])
    assert scripts[0].events == scripts[1].events
    assert scripts[0].events != scripts[2].events


def test_everything_that_can_happen_does_in_a_hundred_seeds() -> None:
    scripts = [script_of(seed, source=source, sink="file") for seed in range(100) for source in SOURCES]
    events = [event for script in scripts for event in script.events]
    kinds = Counter(type(event).__name__ for event in events)
    declared = {name for name, value in vars(nemesis_events).items() if is_dataclass(value)}
    assert kinds.keys() >= declared - {"Write"}
    assert {event.point for event in events if isinstance(event, Fault)} == POINTS.keys()
    assert {event.abandoned for event in events if isinstance(event, Pause)} == {True, False}


def test_a_script_runs_the_changefeed_to_its_end() -> None:
    for seed in range(100):
        events = script_of(seed, source="postgres", sink="file").events
        assert [type(event) for event in events[-2:]] == [Read, Pause]
        turns = [event for event in events if isinstance(event, Resume | Pause)]
        assert all(isinstance(turn, Resume) for turn in turns[::2])
        assert all(isinstance(turn, Pause) for turn in turns[1::2])


@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_has_scripts_that_could_show_it(bug: str) -> None:
    assert set(BUGS[bug].faults) <= POINTS.keys()
    script = next(scripts_for(bug, PLACES, first=1))
    assert (script.source in BUGS[bug].sources, script.sink in BUGS[bug].sinks) == (True, True)
