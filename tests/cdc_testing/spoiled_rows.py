"""Histories with lost, moved, changed or invented rows."""

from __future__ import annotations

from dataclasses import replace

from cdc_conformance.validators import Row, SeenRow
from cdc_conformance.validators.events import row_text
from cdc_testing.histories import TOTAL
from cdc_testing.spots import Event, Expected, Spot, balance, sabotage


@sabotage
def a_lost_version(spot: Spot) -> tuple[list[Event], Expected] | None:
    row, following = spot.row, spot.following
    if not spot.is_from_log or following is None or row.before is None or row.after is None or not spot.gain:
        return None
    if following.after is None:
        return None
    expected = {
        "before_after_seen": [
            f"{following.place} updated {following.updated}: before is {row_text(row.after)},"
            f" expected {row_text(row.before)}"
        ],
        **spot.shown(row.before, row.after),
        **spot.lost(),
        f"versions of {row.topic}": [f"{row.name}: versions [{row.after['n']}] never arrived"],
    }
    return spot.history.events(), expected


@sabotage
def a_lost_last_version(spot: Spot) -> tuple[list[Event], Expected] | None:
    row = spot.row
    if not spot.is_from_log or spot.following is not None or row.before is None or row.after is None or not spot.gain:
        return None
    expected = spot.shown(row.before, row.after) | spot.lost()
    return spot.history.events(), expected


@sabotage
def a_lost_delete(spot: Spot) -> tuple[list[Event], Expected] | None:
    row = spot.row
    once = [version.after for version in spot.versions].count(None) == 1
    if not spot.is_from_log or row.after is not None or spot.following is not None or not once or not spot.gain:
        return None
    expected = spot.shown(row.before, None) | spot.lost()
    return spot.history.events(), expected


@sabotage
def a_lost_row_of_the_scan(spot: Spot) -> tuple[list[Event], Expected] | None:
    row = spot.row
    if spot.step or spot.following is not None or not spot.is_only_version or not balance(row.after):
        return None
    moment = f"at resolved {spot.resolved}"
    made = sum(time <= spot.resolved for time, _ in spot.history.commits)
    commits = f"after {made} of {len(spot.history.commits)} commits"
    expected = {
        "fingerprint": [f"{moment}: {spot.differs(None, row.after)}"],
        "prefix": [
            f"{moment}: the tables match no commit; {commits} {row.name} was {row_text(row.after)}, but is no row"
        ],
        **spot.lost(),
    }
    return spot.history.events(), expected


@sabotage
def two_versions_swapped(spot: Spot) -> tuple[list[Event], Expected] | None:
    row, rows = spot.row, spot.rows
    places = [index for index, other in enumerate(rows) if other.key == row.key]
    if not spot.is_from_log or len(places) != 2 or places[0] != spot.index or row.before is None:
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
def a_wrong_before(spot: Spot) -> tuple[list[Event], Expected] | None:
    return _with_before(spot, spot.row.before and {**spot.row.before, "balance": -1})


@sabotage
def a_missing_before(spot: Spot) -> tuple[list[Event], Expected] | None:
    return _with_before(spot, None)


def _with_before(spot: Spot, wrong: Row | None) -> tuple[list[Event], Expected] | None:
    if not spot.is_from_log or spot.row.before is None:
        return None
    text = f"{spot.described}: before is {row_text(wrong)}, expected {row_text(spot.row.before)}"
    spot.rows[spot.index] = replace(spot.row, before=wrong)
    return spot.history.events(), {"before_after": [text], "before_after_seen": [text]}


@sabotage
def a_wrong_after(spot: Spot) -> tuple[list[Event], Expected] | None:
    row, following = spot.row, spot.following
    if not spot.is_from_log or row.after is None or row.before is None or following is None:
        return None
    wrong = {**row.after, "balance": row.after["balance"] + 7}
    expected = {
        "before_after": [f"{spot.described}: after is {row_text(wrong)}, expected {row_text(row.after)}"],
        "before_after_seen": [
            f"{following.place} updated {following.updated}: before is {row_text(row.after)},"
            f" expected {row_text(wrong)}"
        ],
        **spot.shown(wrong, row.after),
        "cuts": spot.totals(TOTAL + 7, until=spot.until),
        "completeness": [
            f"{row.name} updated {row.updated}: version {row_text(wrong)} was never committed",
            spot.never_arrived(column=False),
        ],
    }
    spot.rows[spot.index] = replace(row, after=wrong)
    return spot.history.events(), expected


@sabotage
def a_repeat_with_other_values(spot: Spot) -> tuple[list[Event], Expected] | None:
    row = spot.row
    if not spot.is_from_log or row.after is None:
        return None
    wrong = {**row.after, "balance": -1}
    text = f"{spot.described}: arrived again with after {row_text(wrong)}, expected {row_text(row.after)}"
    spot.history.steps[-1].rows[spot.endpoint].append(replace(row, after=wrong))
    return spot.history.events(), {"before_after": [text], "before_after_seen": [text]}


@sabotage
def a_key_on_two_partitions(spot: Spot) -> tuple[list[Event], Expected] | None:
    row = spot.row
    if not spot.is_from_log or not spot.is_only_version or row.before is None or row.partition is None:
        return None
    other = 1 - row.partition
    text = f"{row.name}: received on two partitions: {row.partition} and {other}"
    del spot.rows[spot.index]
    spot.history.steps[spot.step].rows[row.topic, other].append(replace(row, partition=other))
    return spot.history.events(), {"order": [text]}


@sabotage
def a_row_of_another_topic(spot: Spot) -> tuple[list[Event], Expected] | None:
    row = spot.row
    if not spot.is_from_log or row.topic != "t" or spot.following or row.before is None or row.after is None:
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
    time = spot.unused_time()
    if not spot.is_from_log or time is None:
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
    row, time = spot.row, spot.unused_time()
    if not spot.is_from_log or time is None or not spot.gain:
        return None
    expected = {
        "before_after": [
            f"{row.place} updated {time}: before is {row_text(row.before)}, expected {row_text(row.after)}"
        ],
        **spot.shown(row.before, row.after),
        "cuts": [f"at {row.updated}: the total is {TOTAL - spot.gain}"],
    }
    spot.rows[spot.index] = replace(row, updated=time)
    return spot.history.events(), expected
