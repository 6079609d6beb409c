"""Ways to spoil a correct history, by name."""

from __future__ import annotations

from collections.abc import Callable

from cdc_testing.histories import Event
from cdc_testing.spots import Spot

__all__ = ["SABOTAGES", "Expected", "Sabotage", "is_from_log", "sabotage"]

Expected = dict[str, list[str]]
"""The failures that validators must report, by the name of the validator."""
Sabotage = Callable[[Spot], tuple[list[Event], Expected] | None]
SABOTAGES: dict[str, Sabotage] = {}


def sabotage(function: Sabotage) -> Sabotage:
    """Register a way to spoil a history. It returns None if the row is not suitable."""
    SABOTAGES[function.__name__] = function
    return function


def is_from_log(spot: Spot) -> bool:
    """Return whether the row comes from the log, after the scan and the step that follows it."""
    return spot.step > 1
