"""A correct history has no failures, and each way to spoil one is found by the right validators and no other."""

from __future__ import annotations

import cdc_testing.spoiled_fields
import cdc_testing.spoiled_marks
import cdc_testing.spoiled_rows
import pytest
from cdc_testing.histories import History
from cdc_testing.seen import feed
from cdc_testing.spots import SABOTAGES, Event, Expected, Sabotage, Spot, spots, strict_validators

assert cdc_testing.spoiled_rows
assert cdc_testing.spoiled_marks
assert cdc_testing.spoiled_fields


@pytest.mark.parametrize("files", [False, True], ids=["partitions", "files"])
@pytest.mark.parametrize("seed", range(30))
def test_a_correct_history_has_no_failures(seed: int, files: bool) -> None:
    history = History(seed, files)
    for events in (history.events(), history.with_restarts()):
        for name, validator in strict_validators(history).items():
            assert feed(validator, *events) == [], name


def _spoiled(spoil: Sabotage, seed: int) -> tuple[Spot, tuple[list[Event], Expected]]:
    return next((spot, spoiled) for spot in spots(seed) if (spoiled := spoil(spot)) is not None)


@pytest.mark.parametrize("spoil", SABOTAGES.values(), ids=SABOTAGES)
@pytest.mark.parametrize("seed", range(5))
def test_a_spoiled_history_has_exactly_the_expected_failures(spoil: Sabotage, seed: int) -> None:
    spot, (events, expected) = _spoiled(spoil, seed)
    found = {name: feed(validator, *events) for name, validator in strict_validators(spot.history).items()}
    assert {name: failures for name, failures in found.items() if failures} == expected


def test_every_validator_finds_something() -> None:
    finders = {name for spoil in SABOTAGES.values() for name in _spoiled(spoil, 1)[1][1]}
    assert strict_validators(History(1)).keys() - finders - {"versions of t", "versions of u"} == {"count"}
