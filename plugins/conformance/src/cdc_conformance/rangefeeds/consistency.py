"""Whether some rows are a state that a database could have been in."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_conformance.rangefeeds.changes import Change
from cdc_conformance.workload import History, RowKey

__all__ = ["torn"]


def torn(state: Mapping[RowKey, Change], history: History) -> str | None:
    """Return what is wrong with *state*, the newest change of each key: None when it is a consistent cut.

    It is when every transaction of *history* is in it whole or not at all, and with a version of a key all that came
    before. Which version a row is its `n` tells; a deleted row may be at any of its deletes.
    """
    versions = {
        key: [None, *(None if row is None else row["n"] for row in rows)] for key, rows in history.versions().items()
    }
    possible: dict[RowKey, set[int]] = {}
    for key, order in versions.items():
        n = state[key].n if key in state else None
        possible[key] = {place for place, version in enumerate(order) if version == n}
        if not possible[key]:
            return f"version {n} of row {key} is none of those that were committed: {order[1:]}"
    places: list[list[tuple[RowKey, int]]] = []
    count = dict.fromkeys(versions, 0)
    for commit in history.commits:
        for write in commit:
            count[write.key] += 1
        places.append([(write.key, count[write.key]) for write in commit])
    return _settle(places, possible)


def _settle(places: list[list[tuple[RowKey, int]]], possible: dict[RowKey, set[int]]) -> str | None:
    """Narrow down how far each key is until every transaction is in or out; return the first that is torn."""
    narrowed = True
    while narrowed:
        narrowed = False
        for number, commit in enumerate(places):
            inside = next((key for key, place in commit if min(possible[key]) >= place), None)
            outside = next((key for key, place in commit if max(possible[key]) < place), None)
            if inside is not None and outside is not None:
                return f"of transaction {number} row {inside} is there and row {outside} is not"
            if inside is None and outside is None:
                continue
            for key, place in commit:
                left = {known for known in possible[key] if (known >= place) is (inside is not None)}
                if not left:
                    return f"of transaction {number} row {inside or outside} and row {key} do not fit together"
                narrowed |= left != possible[key]
                possible[key] = left
    return None
