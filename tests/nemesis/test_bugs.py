"""Mistakes that are put into the engine are found: those that show soonest, `make nemesis` has all of them."""

from __future__ import annotations

from itertools import islice

import pytest
from cdc_testing.engine_bugs import BUGS, installed
from cdc_testing.nemesis_rig import NemesisRig, scripts_for

from cdc_core.engine import coordinator, planner, rescans, run
from cdc_core.spark import source, writer

PLACES = (
    coordinator,
    coordinator.Coordinator,
    run,
    source,
    planner.Planner,
    rescans.Rescans,
    writer,
    writer.SinkWriter,
)
"""Modules and classes that bugs change."""
MOST_SCRIPTS = 10


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_there_until_it_is_taken_out(bug: str) -> None:
    before = [dict(vars(place)) for place in PLACES]
    with installed(bug):
        assert [dict(vars(place)) for place in PLACES] != before
    assert [dict(vars(place)) for place in PLACES] == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug",
    [
        "report-before-flush",
        "resolved-at-the-maximum",
        "resolved-before-flush",
        "retry-skips",
        "only-the-newest",
        "whole-table-for-one-range",
    ],
)
def test_a_bug_is_found(rig: NemesisRig, bug: str) -> None:
    for script in islice(scripts_for(bug, [("simulated", "file")], first=1), MOST_SCRIPTS):
        outcome = rig.play(script, bug=bug)
        assert outcome.broke == []
        if outcome.failures:
            return
    pytest.fail(f"not found: {BUGS[bug].mistake}")
