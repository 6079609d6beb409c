"""Mistakes that are put into the engine are found: those that show soonest, `make nemesis` has all of them."""

from __future__ import annotations

from itertools import islice

import pytest
from cdc_testing.engine_bugs import BUGS, installed
from cdc_testing.nemesis_rig import NemesisRig, scripts_for

from cdc_core.engine import attempt, attempts, planner, step_machine

PLACES = (step_machine, step_machine.StepMachine, attempts, planner.Planner, planner.Rescans, attempt, attempt.Attempt)
"""Modules and classes that bugs change."""
MAX_SCRIPTS = 10


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_there_until_it_is_taken_out(bug: str) -> None:
    before = [dict(vars(place)) for place in PLACES]
    with installed(bug):
        assert [dict(vars(place)) for place in PLACES] != before
    assert [dict(vars(place)) for place in PLACES] == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "first"),
    [
        ("report-before-flush", 1),
        ("resolved-at-the-maximum", 1),
        ("resolved-before-flush", 1),
        ("retry-skips", 1),
        ("only-the-newest", 5),
        ("whole-table-for-one-range", 1),
    ],
)
def test_a_bug_is_found(thread_rig: NemesisRig, bug: str, first: int) -> None:
    """*first* is the seed of the first script, one that is known to show the bug most often."""
    for script in islice(scripts_for(bug, [("simulated", "file")], first=first), MAX_SCRIPTS):
        outcome = thread_rig.play(script, bug=bug)
        assert outcome.broke == []
        if outcome.failures:
            return
    pytest.fail(f"not found: {BUGS[bug].mistake}")
