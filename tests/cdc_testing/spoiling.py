"""Ways to spoil a correct history, each noted by its name."""

from __future__ import annotations

from collections.abc import Callable

from cdc_testing.histories import Event
from cdc_testing.spots import Spot

__all__ = ["SABOTAGES", "Expected", "Sabotage", "logged", "sabotage"]

Expected = dict[str, list[str]]
"""What each validator that finds the spoiled spot says, by the validator's name."""
Sabotage = Callable[[Spot], tuple[list[Event], Expected] | None]
SABOTAGES: dict[str, Sabotage] = {}


def sabotage(function: Sabotage) -> Sabotage:
    """Note a way to spoil a history; it returns None where the row is not fit for it."""
    SABOTAGES[function.__name__] = function
    return function


def logged(spot: Spot) -> bool:
    """Return whether the row is of the log, and not of the scan or the step after it."""
    return spot.step > 1
