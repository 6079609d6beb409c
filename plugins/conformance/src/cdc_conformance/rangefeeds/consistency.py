"""Checks whether rows are a state that a database was in."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_conformance.rangefeeds.changes import Change
from cdc_conformance.workload import History, RowKey

__all__ = ["torn"]


def torn(state: Mapping[RowKey, Change], history: History) -> str | None:
    """Return why *state*, the newest change of each key, is not a consistent cut of *history*; None if it is one.

    In a consistent cut every transaction is complete or absent, and no version lacks an earlier one. The column `n`
    numbers the versions of a row; a deleted row may be at any of its deletes.
    """
    versions = {key: [None, *numbers] for key, numbers in history.numbers().items()}
    possible: dict[RowKey, set[int]] = {}
    for key, order in versions.items():
        n = state[key].n if key in state else None
        possible[key] = {place for place, version in enumerate(order) if version == n}
        if not possible[key]:
            return f"version {n} of row {key} was never committed; the committed versions are {order[1:]}"
    places: list[list[tuple[RowKey, int]]] = []
    count = dict.fromkeys(versions, 0)
    for commit in history.commits:
        for write in commit:
            count[write.key] += 1
        places.append([(write.key, count[write.key]) for write in commit])
    return _settle(places, possible)


def _settle(places: list[list[tuple[RowKey, int]]], possible: dict[RowKey, set[int]]) -> str | None:
    """Narrow down the version of each key until every transaction is in or out; return the first torn transaction."""
    narrowed = True
    while narrowed:
        narrowed = False
        for number, commit in enumerate(places):
            inside = next((key for key, place in commit if min(possible[key]) >= place), None)
            outside = next((key for key, place in commit if max(possible[key]) < place), None)
            if inside is not None and outside is not None:
                return f"transaction {number} is torn: row {inside} arrived and row {outside} did not"
            if inside is None and outside is None:
                continue
            for key, place in commit:
                left = {known for known in possible[key] if (known >= place) is (inside is not None)}
                if not left:
                    return f"transaction {number} is torn: row {inside or outside} and row {key} do not match"
                narrowed |= left != possible[key]
                possible[key] = left
    return None
