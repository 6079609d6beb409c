"""A nemesis rig on the session's own servers and Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.nemesis import Outcome
from cdc_testing.nemesis_rig import NemesisRig, command
from cdc_testing.nemesis_script import script_of

Play = Callable[..., Outcome]


@pytest.fixture
def play(kept_spark: KeptSpark, tmp_path: Path, request: pytest.FixtureRequest) -> Play:
    """Play the script of a seed; servers are asked for when they are needed."""
    rig = NemesisRig(
        tmp_path / "nemesis",
        kept_spark,
        postgres=lambda: request.getfixturevalue("postgres_server"),
        kafka=lambda: request.getfixturevalue("kafka_broker"),
    )

    def play(seed: int, source: str, sink: str, *, bug: str = "", events: int = 60) -> Outcome:
        script = script_of(seed, source=source, sink=sink, events=events)
        outcome = rig.play(script, bug=bug)
        if outcome.failures:
            print(f"events: {outcome.log_path}\nagain: {command(script, bug)}")
        return outcome

    return play
