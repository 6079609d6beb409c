"""A few seeds of what `make nemesis` plays many of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cdc_testing.nemesis import Outcome
from cdc_testing.nemesis_rig import PLACES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("source", "sink"), PLACES)
def test_the_engine_keeps_its_promises_whatever_happens(play: Callable[..., Outcome], source: str, sink: str) -> None:
    outcome = play(11, source, sink)
    assert outcome.failures == []
    assert outcome.rows > 0
    assert outcome.marks > 0
