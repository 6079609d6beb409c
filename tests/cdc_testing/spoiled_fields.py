"""Histories with wrong or missing metadata in a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cdc_conformance.validators import SeenRow
from cdc_testing.spots import SABOTAGES, Event, Expected, Sabotage, Spot

from cdc_core import Timestamp

_WRONG: dict[str, tuple[str, Callable[[SeenRow], Any], str]] = {
    "an_mvcc_timestamp_after_updated": ("mvcc", lambda row: row.updated.next(), "mvcc timestamp {} is after it"),
    "an_mvcc_timestamp_long_before_updated": (
        "mvcc",
        lambda row: Timestamp(row.updated.wall - 3_600_000_000_001),
        "mvcc timestamp {} is more than 3600 s before it",
    ),
    "a_missing_mvcc_timestamp": ("mvcc", lambda _: None, "has no mvcc timestamp"),
    "a_wrong_key_in_the_value": ("key_in_value", lambda _: (99,), "the key in its value is [99]"),
    "a_missing_key_in_the_value": ("key_in_value", lambda _: None, "has no key in its value"),
    "a_wrong_topic_in_the_value": ("topic_in_value", lambda _: "w", "the topic in its value is w"),
    "a_missing_topic_in_the_value": ("topic_in_value", lambda _: None, "has no topic in its value"),
}
"""A field of a row, its value, and what is said of it."""


def _sabotage(name: str, value: Callable[[SeenRow], Any], text: str) -> Sabotage:
    def spoil(spot: Spot) -> tuple[list[Event], Expected]:
        wrong, said = value(spot.row), f"{spot.described}: {text.format(value(spot.row))}"
        spot.rows[spot.index] = replace(spot.row, **{name: wrong})
        return spot.history.events(), {"topic" if name == "topic_in_value" else name: [said]}

    return spoil


SABOTAGES.update({spoiled: _sabotage(*wrong) for spoiled, wrong in _WRONG.items()})
