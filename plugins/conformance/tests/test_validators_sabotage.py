"""Each way to spoil a correct history is found by the validators that are for it, in so many words, and by no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from cdc_conformance.validators import SeenMark, SeenRow
from cdc_conformance.validators.events import key_text, place_text, row_text
from cdc_testing.histories import TOTAL, Event, History
from cdc_testing.judges import judges
from cdc_testing.seen import feed
from cdc_testing.spots import Spot, balance, spots

from cdc_core import Timestamp

Expected = dict[str, list[str]]
Sabotage = Callable[[Spot], tuple[list[Event], Expected] | None]
SABOTAGES: dict[str, Sabotage] = {}


def sabotage(function: Sabotage) -> Sabotage:
    """Note a way to spoil a history; it returns None where the row is not fit for it."""
    SABOTAGES[function.__name__] = function
    return function


def _logged(spot: Spot) -> bool:
    return spot.step > 1


@sabotage
def a_lost_version(spot: Spot) -> tuple[list[Event], Expected] | None:
    row, following = spot.row, spot.following
    if not _logged(spot) or following is None or row.before is None or row.after is None or not spot.gain:
        return None
    if following.after is None:
        return None
    expected = {
        "before_after_seen": [
            f"{following.place} updated {following.updated}: before is {row_text(row.after)},"
            f" expected {row_text(row.before)}"
        ],
        "fingerprint": [f"at {row.updated}: {spot.differs(row.before, row.after)}"],
        "prefix": [spot.no_commit(row.before, row.after)],
        "cuts": spot.totals(TOTAL - spot.gain, until=spot.until),
        "completeness": [spot.never_arrived(column=False)],
        "counted completeness": [spot.never_arrived(column=True)],
        f"versions of {row.topic}": [f"{row.name}: versions [{row.after['n']}] never arrived"],
    }
    del spot.rows[spot.index]
    return spot.history.events(), expected


@sabotage
def a_lost_last_version(spot: Spot) -> tuple[list[Event], Expected] | None:
    row = spot.row
    if not _logged(spot) or spot.following is not None or row.before is None or row.after is None or not spot.gain:
        return None
    expected = {
        "fingerprint": [f"at {row.updated}: {spot.differs(row.before, row.after)}"],
        "prefix": [spot.no_commit(row.before, row.after)],
        "cuts": spot.totals(TOTAL - spot.gain, until=spot.until),
        "completeness": [spot.never_arrived(column=False)],
        "counted completeness": [spot.never_arrived(column=True)],
    }
    del spot.rows[spot.index]
    return spot.history.events(), expected


@sabotage
def a_lost_delete(spot: Spot) -> tuple[list[Event], Expected] | None:
    row = spot.row
    once = [version.after for version in spot.versions].count(None) == 1
    if not _logged(spot) or row.after is not None or spot.following is not None or not once or not spot.gain:
        return None
    expected = {
        "fingerprint": [f"at {row.updated}: {spot.differs(row.before, None)}"],
        "prefix": [spot.no_commit(row.before, None)],
        "cuts": spot.totals(TOTAL - spot.gain, until=spot.until),
        "completeness": [spot.never_arrived(column=False)],
        "counted completeness": [spot.never_arrived(column=True)],
    }
    del spot.rows[spot.index]
    return spot.history.events(), expected


@sabotage
def a_lost_row_of_the_scan(spot: Spot) -> tuple[list[Event], Expected] | None:
    row = spot.row
    if spot.step or spot.following is not None or not spot.alone or not balance(row.after):
        return None
    moment = f"at resolved {spot.resolved}"
    made = sum(time <= spot.resolved for time, _ in spot.history.commits)
    commits = f"after {made} of {len(spot.history.commits)} commits"
    expected = {
        "fingerprint": [f"{moment}: {spot.differs(None, row.after)}"],
        "prefix": [
            f"{moment}: no commit left the tables so; {commits} {row.name} was {row_text(row.after)}, but is no row"
        ],
        "cuts": spot.totals(TOTAL - spot.gain, until=spot.until),
        "completeness": [spot.never_arrived(column=False)],
        "counted completeness": [spot.never_arrived(column=True)],
    }
    del spot.rows[spot.index]
    return spot.history.events(), expected


@sabotage
def two_versions_swapped(spot: Spot) -> tuple[list[Event], Expected] | None:
    row, rows = spot.row, spot.rows
    places = [index for index, other in enumerate(rows) if other.key == row.key]
    if not _logged(spot) or len(places) != 2 or places[0] != spot.index or row.before is None:
        return None
    later = rows[places[1]]
    expected = {
        "order": [f"{row.place}: saw new row timestamp {row.updated} after {later.updated} was seen"],
        "before_after_seen": [
            f"{later.place} updated {later.updated}: before is {row_text(later.before)},"
            f" expected {row_text(row.before)}"
        ],
    }
    rows[places[0]], rows[places[1]] = later, row
    return spot.history.events(), expected


@sabotage
def a_row_after_its_mark(spot: Spot) -> tuple[list[Event], Expected] | None:
    row, step = spot.row, spot.step
    if not _logged(spot) or not spot.alone or step + 1 == len(spot.history.steps) or not spot.gain:
        return None
    resolved = spot.resolved
    expected = {
        "order": [f"{row.place}: saw new row timestamp {row.updated} after {resolved} was resolved"],
        "resolved": [
            f"{row.place}: new row timestamp {row.updated}, when every endpoint was resolved up to {resolved}"
        ],
        "fingerprint": [f"at {row.updated}: {spot.differs(row.before, row.after)}"],
        "prefix": [spot.no_commit(row.before, row.after)],
        "cuts": spot.totals(TOTAL - spot.gain, until=resolved.next()),
    }
    del spot.rows[spot.index]
    spot.history.steps[step + 1].rows[spot.endpoint].insert(0, row)
    return spot.history.events(), expected


@sabotage
def a_mark_too_early_on_one_endpoint(spot: Spot) -> tuple[list[Event], Expected] | None:
    if not _logged(spot) or spot.index + 1 < len(spot.rows):
        return None
    row, events = spot.row, spot.history.events()
    mark = _mark(spot)
    events.remove(mark)
    events.insert(events.index(row), mark)
    return events, {"order": [f"{row.place}: saw new row timestamp {row.updated} after {spot.resolved} was resolved"]}


@sabotage
def a_mark_that_one_endpoint_lacks(spot: Spot) -> tuple[list[Event], Expected] | None:
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
def a_mark_where_none_belongs(spot: Spot) -> tuple[list[Event], Expected]:
    events = [*spot.history.events(), SeenMark(topic="t", partition=2, resolved=spot.resolved)]
    stranger = "topic t partition 2: not among the endpoints"
    return events, {
        "resolved": [f"topic t partition 2: resolved {spot.resolved} where no mark belongs"],
        "fingerprint": [stranger],
        "prefix": [stranger],
        "cuts": [f"{stranger} to be cut"],
    }


@sabotage
def a_wrong_before(spot: Spot) -> tuple[list[Event], Expected] | None:
    if not _logged(spot) or spot.row.before is None:
        return None
    wrong = {**spot.row.before, "balance": -1}
    text = f"{spot.said}: before is {row_text(wrong)}, expected {row_text(spot.row.before)}"
    spot.rows[spot.index] = replace(spot.row, before=wrong)
    return spot.history.events(), {"before_after": [text], "before_after_seen": [text]}


@sabotage
def a_before_that_is_missing(spot: Spot) -> tuple[list[Event], Expected] | None:
    if not _logged(spot) or spot.row.before is None:
        return None
    text = f"{spot.said}: before is no row, expected {row_text(spot.row.before)}"
    spot.rows[spot.index] = replace(spot.row, before=None)
    return spot.history.events(), {"before_after": [text], "before_after_seen": [text]}


@sabotage
def a_wrong_after(spot: Spot) -> tuple[list[Event], Expected] | None:
    row, following = spot.row, spot.following
    if not _logged(spot) or row.after is None or row.before is None or following is None:
        return None
    wrong = {**row.after, "balance": row.after["balance"] + 7}
    expected = {
        "before_after": [f"{spot.said}: after is {row_text(wrong)}, expected {row_text(row.after)}"],
        "before_after_seen": [
            f"{following.place} updated {following.updated}: before is {row_text(row.after)},"
            f" expected {row_text(wrong)}"
        ],
        "fingerprint": [f"at {row.updated}: {spot.differs(wrong, row.after)}"],
        "prefix": [spot.no_commit(wrong, row.after)],
        "cuts": spot.totals(TOTAL + 7, until=spot.until),
        "completeness": [
            f"{row.name} updated {row.updated}: version {row_text(wrong)} was never committed",
            spot.never_arrived(column=False),
        ],
    }
    spot.rows[spot.index] = replace(row, after=wrong)
    return spot.history.events(), expected


@sabotage
def a_repeat_that_says_something_else(spot: Spot) -> tuple[list[Event], Expected] | None:
    row = spot.row
    if not _logged(spot) or row.after is None:
        return None
    wrong = {**row.after, "balance": -1}
    text = f"{spot.said}: came again with after {row_text(wrong)}, expected {row_text(row.after)}"
    spot.history.steps[-1].rows[spot.endpoint].append(replace(row, after=wrong))
    return spot.history.events(), {"before_after": [text], "before_after_seen": [text]}


@sabotage
def a_key_on_two_partitions(spot: Spot) -> tuple[list[Event], Expected] | None:
    row = spot.row
    if not _logged(spot) or not spot.alone or row.before is None or row.partition is None:
        return None
    other = 1 - row.partition
    text = f"{row.name}: received on two partitions: {row.partition} and {other}"
    del spot.rows[spot.index]
    spot.history.steps[spot.step].rows[row.topic, other].append(replace(row, partition=other))
    return spot.history.events(), {"order": [text]}


@sabotage
def a_row_of_another_topic(spot: Spot) -> tuple[list[Event], Expected] | None:
    row = spot.row
    if not _logged(spot) or row.topic != "t" or spot.following or row.before is None or row.after is None:
        return None
    if not spot.gain or not balance(row.before):
        return None
    moved = replace(row, topic="u")
    said = f"{moved.place} updated {row.updated}"
    expected = {
        "topic": [f"{said}: the topic in its value is t"],
        "before_after": [
            f"{said}: after is {row_text(row.after)}, expected no row",
            f"{said}: before is {row_text(row.before)}, expected no row",
        ],
        "fingerprint": [
            f"at {row.updated}: {spot.differs(row.before, row.after)}",
            f"at {row.updated}: {moved.name}: is {row_text(row.after)}, expected no row",
        ],
        "prefix": [spot.no_commit(row.before, row.after)],
        "cuts": spot.totals(TOTAL + balance(row.before), until=spot.until),
        "completeness": [
            spot.never_arrived(column=False),
            f"{moved.name} updated {row.updated}: version {row_text(row.after)} was never committed",
        ],
        "counted completeness": [
            spot.never_arrived(column=True),
            f"{moved.name} updated {row.updated}: version {row.after['n']} was never committed",
        ],
    }
    del spot.rows[spot.index]
    spot.history.steps[spot.step].rows["u", row.partition].append(moved)
    return spot.history.events(), expected


@sabotage
def an_invented_row(spot: Spot) -> tuple[list[Event], Expected] | None:
    time = spot.free()
    if not _logged(spot) or time is None:
        return None
    row = SeenRow(
        topic="t",
        partition=1,
        key=(7,),
        after={"id": 7, "n": 1, "balance": 0},
        updated=time,
        mvcc=time,
        key_in_value=(7,),
        topic_in_value="t",
    )
    said = f"topic t partition 1 key [7] updated {time}"
    shown = row_text(row.after)
    expected = {
        "before_after": [f"{said}: after is {shown}, expected no row"],
        "fingerprint": [f"at {time}: topic t key [7]: is {shown}, expected no row"],
        "prefix": [spot.no_commit(row.after, None, moment=f"at {time}", name="topic t key [7]")],
        "completeness": [f"topic t key [7] updated {time}: version {shown} was never committed"],
        "counted completeness": [f"topic t key [7] updated {time}: version 1 was never committed"],
    }
    spot.history.steps[spot.step].rows["t", 1].append(row)
    return spot.history.events(), expected


@sabotage
def a_torn_transaction(spot: Spot) -> tuple[list[Event], Expected] | None:
    row, time = spot.row, spot.free()
    if not _logged(spot) or time is None or not spot.gain:
        return None
    expected = {
        "before_after": [
            f"{row.place} updated {time}: before is {row_text(row.before)}, expected {row_text(row.after)}"
        ],
        "fingerprint": [f"at {row.updated}: {spot.differs(row.before, row.after)}"],
        "prefix": [spot.no_commit(row.before, row.after)],
        "cuts": [f"at {row.updated}: the total is {TOTAL - spot.gain}"],
    }
    spot.rows[spot.index] = replace(row, updated=time)
    return spot.history.events(), expected


@sabotage
def an_mvcc_timestamp_after_updated(spot: Spot) -> tuple[list[Event], Expected]:
    mvcc = spot.row.updated.next()
    text = f"{spot.said}: mvcc timestamp {mvcc} is after it"
    spot.rows[spot.index] = replace(spot.row, mvcc=mvcc)
    return spot.history.events(), {"mvcc": [text]}


@sabotage
def an_mvcc_timestamp_too_long_before(spot: Spot) -> tuple[list[Event], Expected]:
    mvcc = Timestamp(spot.row.updated.wall - 3_600_000_000_001)
    text = f"{spot.said}: mvcc timestamp {mvcc} is more than 3600 s before it"
    spot.rows[spot.index] = replace(spot.row, mvcc=mvcc)
    return spot.history.events(), {"mvcc": [text]}


@sabotage
def an_mvcc_timestamp_that_is_missing(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.said}: has no mvcc timestamp"
    spot.rows[spot.index] = replace(spot.row, mvcc=None)
    return spot.history.events(), {"mvcc": [text]}


@sabotage
def a_key_in_the_value_that_differs(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.said}: the key in its value is [99]"
    spot.rows[spot.index] = replace(spot.row, key_in_value=(99,))
    return spot.history.events(), {"key_in_value": [text]}


@sabotage
def a_key_in_the_value_that_is_missing(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.said}: has no key in its value"
    spot.rows[spot.index] = replace(spot.row, key_in_value=None)
    return spot.history.events(), {"key_in_value": [text]}


@sabotage
def a_topic_in_the_value_that_differs(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.said}: the topic in its value is w"
    spot.rows[spot.index] = replace(spot.row, topic_in_value="w")
    return spot.history.events(), {"topic": [text]}


@sabotage
def a_topic_in_the_value_that_is_missing(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.said}: has no topic in its value"
    spot.rows[spot.index] = replace(spot.row, topic_in_value=None)
    return spot.history.events(), {"topic": [text]}


def _mark(spot: Spot) -> SeenMark:
    topic, number = spot.endpoint
    return SeenMark(topic=topic, partition=number, resolved=spot.resolved)


def _spoiled(spoil: Sabotage, seed: int) -> tuple[Spot, tuple[list[Event], Expected]]:
    return next((spot, spoiled) for spot in spots(seed) if (spoiled := spoil(spot)) is not None)


@pytest.mark.parametrize("spoil", SABOTAGES.values(), ids=SABOTAGES)
@pytest.mark.parametrize("seed", range(5))
def test_a_spoiled_history_is_found_in_so_many_words_and_by_no_other_validator(spoil: Sabotage, seed: int) -> None:
    spot, (events, expected) = _spoiled(spoil, seed)
    found = {name: feed(validator, *events) for name, validator in judges(spot.history).items()}
    assert {name: failures for name, failures in found.items() if failures} == expected


def test_every_validator_finds_something() -> None:
    finders = {name for spoil in SABOTAGES.values() for name in _spoiled(spoil, 1)[1][1]}
    assert judges(History(1)).keys() - finders - {"versions of t", "versions of u"} == {"count"}
