"""Histories with resolved marks that are too early, missing, or at an unknown endpoint."""

from __future__ import annotations

from dataclasses import replace

from cdc_conformance.validators import SeenMark
from cdc_conformance.validators.events import key_text, place_text, row_text
from cdc_testing.histories import TOTAL
from cdc_testing.spots import Event, Expected, Spot, sabotage

from cdc_core import Timestamp


@sabotage
def a_row_after_its_mark(spot: Spot) -> tuple[list[Event], Expected] | None:
    row, step = spot.row, spot.step
    if not spot.is_from_log or not spot.is_only_version or step + 1 == len(spot.history.steps) or not spot.gain:
        return None
    resolved = spot.resolved
    expected = {
        "order": [f"{row.place}: saw new row timestamp {row.updated} after {resolved} was resolved"],
        "resolved": [
            f"{row.place}: new row timestamp {row.updated}, when every endpoint was resolved up to {resolved}"
        ],
        **spot.shown(row.before, row.after),
        "cuts": spot.totals(TOTAL - spot.gain, until=resolved.next()),
    }
    del spot.rows[spot.index]
    spot.history.steps[step + 1].rows[spot.endpoint].insert(0, row)
    return spot.history.events(), expected


@sabotage
def a_mark_too_early_on_one_endpoint(spot: Spot) -> tuple[list[Event], Expected] | None:
    if not spot.is_from_log or spot.index + 1 < len(spot.rows):
        return None
    row, events = spot.row, spot.history.events()
    mark = _mark(spot)
    events.remove(mark)
    events.insert(events.index(row), mark)
    return events, {"order": [f"{row.place}: saw new row timestamp {row.updated} after {spot.resolved} was resolved"]}


@sabotage
def a_mark_missing_on_one_endpoint(spot: Spot) -> tuple[list[Event], Expected] | None:
    events = spot.history.events()
    events.remove(_mark(spot))
    expected = f"{place_text(*spot.endpoint)}: resolved {spot.resolved} never arrived, though it did elsewhere"
    return (events, {"resolved": [expected]}) if 0 < spot.step < len(spot.history.steps) - 1 else None


@sabotage
def an_endpoint_without_marks(spot: Spot) -> tuple[list[Event], Expected]:
    events = spot.history.events()
    events = [event for event in events if not (isinstance(event, SeenMark) and event.endpoint == spot.endpoint)]
    commits, rows = len(spot.history.commits), spot.history.state_at(Timestamp(1 << 62))["t"]
    key = min(rows, key=key_text)
    expected = {
        "resolved": [f"{place_text(*spot.endpoint)}: no resolved mark arrived"],
        "prefix": [
            f"the last cut, at 0.0000000000, lacks commits; after {commits} of {commits} commits topic t key"
            f" {key_text(key)} was {row_text(rows[key])}, but is no row"
        ],
    }
    return events, expected


@sabotage
def a_mark_that_goes_back(spot: Spot) -> tuple[list[Event], Expected] | None:
    if not spot.step:
        return None
    events, before = spot.history.events(), spot.history.steps[spot.step - 1].resolved
    events.insert(events.index(_mark(spot)) + 1, replace(_mark(spot), resolved=before))
    expected = f"{place_text(*spot.endpoint)}: resolved went back to {before} after {spot.resolved}"
    return events, {"resolved": [expected]}


@sabotage
def a_mark_at_an_unknown_endpoint(spot: Spot) -> tuple[list[Event], Expected]:
    events = [*spot.history.events(), SeenMark(topic="t", partition=2, resolved=spot.resolved)]
    unknown = "topic t partition 2: not among the endpoints"
    return events, {
        "resolved": [f"topic t partition 2: resolved {spot.resolved} at an endpoint without marks"],
        "fingerprint": [unknown],
        "prefix": [unknown],
        "cuts": [unknown],
    }


def _mark(spot: Spot) -> SeenMark:
    topic, number = spot.endpoint
    return SeenMark(topic=topic, partition=number, resolved=spot.resolved)
