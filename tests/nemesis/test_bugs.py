"""Mistakes that are put into the engine are found: those that show soonest, `make nemesis` has all of them."""

from __future__ import annotations

import pytest
from cdc_testing.engine_bugs import BUGS, install

from cdc_core.spark import coordinator, runner, source, writer

PLACES = (
    coordinator,
    coordinator.Coordinator,
    runner._Run,
    source,
    source.Planner,
    writer,
    writer.SinkWriter,
)
"""Modules and classes that bugs change."""


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_there_until_it_is_taken_out(bug: str) -> None:
    before = [dict(vars(place)) for place in PLACES]
    install(bug)
    try:
        assert [dict(vars(place)) for place in PLACES] != before
    finally:
        install("")
    assert [dict(vars(place)) for place in PLACES] == before
