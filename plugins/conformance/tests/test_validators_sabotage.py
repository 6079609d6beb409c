"""A correct history has no failures, and each way to spoil it is found by the right validators and no other."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cdc_conformance.validators import (
    BeforeAfterValidator,
    CompletenessValidator,
    CountValidator,
    CutValidator,
    FingerprintValidator,
    Key,
    KeyInValueValidator,
    MvccValidator,
    OrderValidator,
    PrefixValidator,
    ResolvedValidator,
    Row,
    SeenMark,
    SeenRow,
    State,
    TopicValidator,
    Validator,
    VersionValidator,
)
from cdc_testing.seen import feed, mark

from cdc_core import Endpoint, Timestamp

Event = SeenRow | SeenMark
Spoil = Callable[[list[Event]], list[Event]]
SHORT = {
    r'{"id": "\w", "n": (\d+), "v": (-?\d+)}': r"\1:\2",
    r'topic (\w)(?: partition (\d))? key \["(\w)"\]': r"\1\2 \3",
    r"\.0000000000": "",
}
"""What is written shorter here: rows, keys and times."""
COMMITS: dict[int, dict[str, tuple[int, int] | None]] = {
    1: {"a": (1, 40), "b": (1, 30), "c": (1, 30), "d": (1, 20)},
    2: {"a": (2, 30), "c": (2, 40)},
    6: {"a": (3, 25), "b": (2, 35)},
    11: {"a": (4, 20), "c": (3, 45)},
    12: {"a": (5, 55), "b": None},
    16: {"a": (6, 45), "b": (3, 10)},
    17: {"a": (7, 90), "c": None},
}
"""Transfers between accounts by time: number of the version and balance, or None when the account is closed."""
PLACES = {"a": ("t", 1), "b": ("t", 0), "c": ("u", 0), "d": ("u", 1)}
ENDPOINTS: list[Endpoint] = [("t", 0), ("t", 1), ("u", 0), ("u", 1)]
SCANNED = 5
MARKS = (SCANNED, 10, 15, 20)


def version(key: str, values: tuple[int, int] | None) -> Row | None:
    return values and {"id": key, "n": values[0], "v": values[1]}


def commit(time: int) -> list[tuple[str, Key, Row | None]]:
    return [(PLACES[key][0], (key,), version(key, values)) for key, values in COMMITS[time].items()]


def state_at(when: Timestamp) -> dict[str, dict[Key, Row]]:
    state: dict[str, dict[Key, Row]] = {"t": {}, "u": {}}
    for topic, (key,), row in (change for time in COMMITS if Timestamp(time) <= when for change in commit(time)):
        state[topic].pop((key,), None)
        if row is not None:
            state[topic][key,] = row
    return state


def as_of(topic: str, key: Key, when: Timestamp) -> Row | None:
    return state_at(when)[topic].get(key)


def arrival(key: str, time: int) -> SeenRow:
    """Return the event for the version that the source had at *time*."""
    (topic, partition), when = PLACES[key], Timestamp(time)
    return SeenRow(
        topic=topic,
        partition=partition,
        key=(key,),
        after=as_of(topic, (key,), when),
        before=None if time == SCANNED else as_of(topic, (key,), when.prev()),
        updated=when,
        mvcc=when,
        key_in_value=(key,),
        topic_in_value=topic,
    )


def steps() -> list[list[Event]]:
    """Return the events up to each mark: the rows of one endpoint after the other, then the marks of all endpoints."""
    found: list[list[Event]] = []
    since = SCANNED
    for until in MARKS:
        times = {SCANNED: PLACES} if until == SCANNED else {t: c for t, c in COMMITS.items() if since < t <= until}
        rows = sorted((arrival(key, time) for time, keys in times.items() for key in keys), key=lambda r: r.key)
        marks = [mark(until, topic=topic, at=number) for topic, number in ENDPOINTS]
        found.append([*rows, *marks])
        since = until
    return found


def with_restarts(seed: int, *, files: bool) -> list[Event]:
    """Return the events of a changefeed that is killed several times; with *files* in one order, else interleaved."""
    chance = random.Random(seed)
    arrivals: dict[Endpoint, list[Event]] = {place: [] for place in ([(None, None)] if files else ENDPOINTS)}
    for number, step in enumerate(steps()):
        last = steps()[number - 1] if number > 1 else []
        for (topic, partition), arrived in arrivals.items():
            before, rows = (
                [
                    replace(event, partition=partition)
                    for event in events
                    if isinstance(event, SeenRow) and (files or (topic, partition) == (event.topic, event.partition))
                ]
                for events in (last, step)
            )
            for _ in range(chance.randrange(3)):
                arrived += [*before, *rows[: chance.randint(0, len(rows))]]
            arrived += [*rows, *[mark(MARKS[number], topic=topic, at=partition)] * chance.randint(1, 2)]
    turns = [place for place, events in arrivals.items() for _ in events]
    chance.shuffle(turns)
    rest = {place: iter(events) for place, events in arrivals.items()}
    return [next(rest[place]) for place in turns]


def validators(endpoints: list[Endpoint] = ENDPOINTS) -> dict[str, Validator]:
    """Return every validator by name, as strict as it can be."""
    commits = [commit(time) for time in COMMITS]

    def invariant(state: State) -> str | None:
        total = sum(row["v"] for rows in state.values() for row in rows.values())
        return None if total == 120 else f"the total is {total}"

    return {
        "order": OrderValidator(),
        "before_after": BeforeAfterValidator(as_of),
        "before_after_seen": BeforeAfterValidator(),
        "fingerprint": FingerprintValidator(state_at, endpoints=endpoints),
        "prefix": PrefixValidator(commits, endpoints=endpoints, whole=True),
        "cuts": CutValidator(invariant, endpoints=endpoints, every_timestamp=True),
        "resolved": ResolvedValidator(endpoints),
        "mvcc": MvccValidator(within_s=4e-9),
        "key_in_value": KeyInValueValidator({"t": ["id"], "u": ["id"]}),
        "topic": TopicValidator(["t", "u"], in_value=True),
        "completeness": CompletenessValidator(commits, started=2),
        "counted completeness": CompletenessValidator(commits, started=2, column="n"),
        "versions of t": VersionValidator("t", "n"),
        "count": CountValidator(least_rows=10, least_marks=4),
    }


def lose(*lost: Event) -> Spoil:
    return lambda events: [event for event in events if event not in lost]


def change(event: SeenRow, **fields: Any) -> Spoil:
    return lambda events: [replace(event, **fields) if each == event else each for each in events]


def move(event: Event, *, before: Event | None = None, behind: Event | None = None) -> Spoil:
    """Move *event*, or add it if it is new; without a place, to the end."""

    def spoil(events: list[Event]) -> list[Event]:
        others = [each for each in events if each != event]
        place = others.index(before) if before else others.index(behind) + 1 if behind else len(others)
        return [*others[:place], event, *others[place:]]

    return spoil


A11, A12, A17 = (arrival("a", time) for time in (11, 12, 17))
C11, C17 = (arrival("c", time) for time in (11, 17))
T15 = mark(15, at=1)
NEW = replace(A12, key=("x",), key_in_value=("x",), updated=Timestamp(12, 1), before=None, after=version("x", (1, 0)))
SPOILS: dict[str, Spoil] = {
    "a lost version": lose(A11),
    "a lost last version": lose(A17),
    "a lost delete": lose(C17),
    "a lost row of the scan": lose(arrival("d", SCANNED)),
    "two versions swapped": move(A11, behind=A12),
    "a wrong before": change(A12, before=version("a", (4, -1))),
    "a missing before": change(A12, before=None),
    "a wrong after": change(A11, after=version("a", (4, 27))),
    "a repeat with other values": move(replace(A12, after=version("a", (5, -1)))),
    "a key on two partitions": change(C11, partition=1),
    "a row of another topic": change(A17, topic="u"),
    "an invented row": move(NEW, behind=A12),
    "a torn transaction": change(C11, updated=Timestamp(11, 1)),
    "a row after its mark": move(C11, behind=mark(15, topic="u", at=1)),
    "a mark too early on one endpoint": move(mark(15, topic="u", at=0), before=C11),
    "a mark missing on one endpoint": lose(T15),
    "an endpoint without marks": lose(*(mark(time, at=1) for time in MARKS)),
    "a mark that goes back": move(replace(T15, resolved=Timestamp(10)), behind=T15),
    "a mark at an unknown endpoint": move(mark(20, at=2)),
    "an mvcc timestamp after updated": change(A12, mvcc=Timestamp(13)),
    "an mvcc timestamp long before updated": change(A12, mvcc=Timestamp(7)),
    "a missing mvcc timestamp": change(A12, mvcc=None),
    "a wrong key in the value": change(A12, key_in_value=("b",)),
    "a missing key in the value": change(A12, key_in_value=None),
    "a wrong topic in the value": change(A12, topic_in_value="u"),
    "a missing topic in the value": change(A12, topic_in_value=None),
}
FAILURES = """\
a lost version
    before_after_seen: t1 a updated 12: before is 4:20, expected 3:25
    fingerprint: at 11: t a: is 3:25, expected 4:20
    prefix: at 11: the tables match no commit; after 4 of 7 commits t a was 4:20, but is 3:25
    cuts: at 11: the total is 125
    completeness: t a: version 4:20, 4 of 7, never arrived
    counted completeness: t a: version 4, 4 of 7, never arrived
    versions of t: t a: versions [4] never arrived
a lost last version
    fingerprint: at 17: t a: is 6:45, expected 7:90
    prefix: at 17: the tables match no commit; after 7 of 7 commits t a was 7:90, but is 6:45
    cuts: at 17: the total is 75 | at resolved 20: the total is 75
    completeness: t a: version 7:90, 7 of 7, never arrived
    counted completeness: t a: version 7, 7 of 7, never arrived
a lost delete
    fingerprint: at 17: u c: is 3:45, expected no row
    prefix: at 17: the tables match no commit; after 7 of 7 commits u c was no row, but is 3:45
    cuts: at 17: the total is 165 | at resolved 20: the total is 165
    completeness: u c: version 'deleted', 4 of 4, never arrived
    counted completeness: u c: version 'deleted', 4 of 4, never arrived
a lost row of the scan
    fingerprint: at resolved 5: u d: is no row, expected 1:20
    prefix: at resolved 5: the tables match no commit; after 2 of 7 commits u d was 1:20, but is no row
    cuts: at resolved 5: the total is 100 | at 6: the total is 100 | at resolved 10: the total is 100 | at 11: the total is 100 | at 12: the total is 100 | at resolved 15: the total is 100 | at 16: the total is 100 | at 17: the total is 100 | at resolved 20: the total is 100
    completeness: u d: version 1:20, 1 of 1, never arrived
    counted completeness: u d: version 1, 1 of 1, never arrived
two versions swapped
    order: t1 a: saw new row timestamp 11 after 12 was seen
    before_after_seen: t1 a updated 12: before is 4:20, expected 3:25
a wrong before
    before_after: t1 a updated 12: before is 4:-1, expected 4:20
    before_after_seen: t1 a updated 12: before is 4:-1, expected 4:20
a missing before
    before_after: t1 a updated 12: before is no row, expected 4:20
    before_after_seen: t1 a updated 12: before is no row, expected 4:20
a wrong after
    before_after: t1 a updated 11: after is 4:27, expected 4:20
    before_after_seen: t1 a updated 12: before is 4:20, expected 4:27
    fingerprint: at 11: t a: is 4:27, expected 4:20
    prefix: at 11: the tables match no commit; after 4 of 7 commits t a was 4:20, but is 4:27
    cuts: at 11: the total is 127
    completeness: t a updated 11: version 4:27 was never committed | t a: version 4:20, 4 of 7, never arrived
a repeat with other values
    before_after: t1 a updated 12: arrived again with after 5:-1, expected 5:55
    before_after_seen: t1 a updated 12: arrived again with after 5:-1, expected 5:55
a key on two partitions
    order: u c: received on two partitions: 0 and 1
a row of another topic
    before_after: u1 a updated 17: after is 7:90, expected no row | u1 a updated 17: before is 6:45, expected no row
    fingerprint: at 17: t a: is 6:45, expected 7:90 | at 17: u a: is 7:90, expected no row
    prefix: at 17: the tables match no commit; after 7 of 7 commits t a was 7:90, but is 6:45
    cuts: at 17: the total is 165 | at resolved 20: the total is 165
    topic: u1 a updated 17: the topic in its value is t
    completeness: t a: version 7:90, 7 of 7, never arrived | u a updated 17: version 7:90 was never committed
    counted completeness: t a: version 7, 7 of 7, never arrived | u a updated 17: version 7 was never committed
an invented row
    before_after: t1 x updated 12.0000000001: after is 1:0, expected no row
    fingerprint: at 12.0000000001: t x: is 1:0, expected no row
    prefix: at 12.0000000001: the tables match no commit; after 5 of 7 commits t x was no row, but is 1:0
    completeness: t x updated 12.0000000001: version 1:0 was never committed
    counted completeness: t x updated 12.0000000001: version 1 was never committed
a torn transaction
    before_after: u0 c updated 11.0000000001: before is 2:40, expected 3:45
    fingerprint: at 11: u c: is 2:40, expected 3:45
    prefix: at 11: the tables match no commit; after 4 of 7 commits u c was 3:45, but is 2:40
    cuts: at 11: the total is 115
a row after its mark
    order: u0 c: saw new row timestamp 11 after 15 was resolved
    fingerprint: at 11: u c: is 2:40, expected 3:45
    prefix: at 11: the tables match no commit; after 4 of 7 commits u c was 3:45, but is 2:40
    cuts: at 11: the total is 115 | at 12: the total is 115 | at resolved 15: the total is 115
    resolved: u0 c: new row timestamp 11, when every endpoint was resolved up to 15
a mark too early on one endpoint
    order: u0 c: saw new row timestamp 11 after 15 was resolved
a mark missing on one endpoint
    resolved: topic t partition 1: resolved 15 never arrived, though it did elsewhere
an endpoint without marks
    prefix: the last cut, at 0, lacks commits; after 7 of 7 commits t a was 7:90, but is no row
    resolved: topic t partition 1: no resolved mark arrived
a mark that goes back
    resolved: topic t partition 1: resolved went back to 10 after 15
a mark at an unknown endpoint
    fingerprint: topic t partition 2: not among the endpoints
    prefix: topic t partition 2: not among the endpoints
    cuts: topic t partition 2: not among the endpoints
    resolved: topic t partition 2: resolved 20 at an endpoint without marks
an mvcc timestamp after updated
    mvcc: t1 a updated 12: mvcc timestamp 13 is after it
an mvcc timestamp long before updated
    mvcc: t1 a updated 12: mvcc timestamp 7 is more than 4e-09 s before it
a missing mvcc timestamp
    mvcc: t1 a updated 12: has no mvcc timestamp
a wrong key in the value
    key_in_value: t1 a updated 12: the key in its value is ["b"]
a missing key in the value
    key_in_value: t1 a updated 12: has no key in its value
a wrong topic in the value
    topic: t1 a updated 12: the topic in its value is u
a missing topic in the value
    topic: t1 a updated 12: has no topic in its value
"""  # noqa: E501


def found(events: list[Event], endpoints: list[Endpoint] = ENDPOINTS) -> list[str]:
    """Return the failures of all validators, a line for each validator that found something."""
    failures = {name: feed(validator, *events) for name, validator in validators(endpoints).items()}
    lines = [f"{name}: {' | '.join(texts)}" for name, texts in failures.items() if texts]
    for long, short in SHORT.items():
        lines = [re.sub(long, short, line) for line in lines]
    return lines


@pytest.mark.parametrize("files", [False, True], ids=["partitions", "files"])
@pytest.mark.parametrize("seed", range(30))
def test_a_correct_history_has_no_failures(seed: int, files: bool) -> None:
    assert found(with_restarts(seed, files=files), [(None, None)] if files else ENDPOINTS) == []


@pytest.mark.parametrize("name", SPOILS)
def test_a_spoiled_history_has_exactly_the_expected_failures(name: str) -> None:
    events = [event for step in steps() for event in step]
    assert found(events) == []
    expected = re.search(rf"^{name}\n((?:    .*\n)+)", FAILURES, re.MULTILINE)
    assert expected is not None
    assert found(SPOILS[name](events)) == [line.strip() for line in expected[1].splitlines()]


def test_every_validator_finds_something() -> None:
    assert validators().keys() - set(re.findall(r"^    ([a-z_ ]+):", FAILURES, re.MULTILINE)) == {"count"}
