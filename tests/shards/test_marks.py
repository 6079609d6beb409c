"""Marks of several sources, as they are saved with a step."""

from __future__ import annotations

from cdc_core import Frontier, Span, SpanMark, Timestamp
from cdc_core.shards.marks import last_moved, token_with_marks
from cdc_core.shards.shard import shard_span
from cdc_core.shards.token import ShardedToken, ShardState
from cdc_core.store.values import Progress

TABLE = "shop.public.t"


def saved(before: Progress, *marks: tuple[int, int, bool]) -> Progress:
    """Return the progress after a step with marks: source, time, and whether it is resolved. The sources moved."""
    moved = {index: {"at": at} for index, at, _ in marks}
    states = ShardedToken.from_json(before.token)
    planned = states.with_tokens(moved.get(index, state.token) for index, state in enumerate(states.shards)).to_json()
    found = [
        SpanMark(span=shard_span(TABLE, index, 2), timestamp=Timestamp(at), resolved=resolved)
        for index, at, resolved in marks
    ]
    for mark in found:
        if mark.resolved:
            before.frontier.forward(mark.span, mark.timestamp)
    token = token_with_marks(planned, found, frontier=before.frontier, before=before.latest)
    return Progress(token=token, frontier=before.frontier, latest=before.latest)


def first() -> Progress:
    token = ShardedToken(shards=(ShardState(token={}), ShardState(token={}))).to_json()
    return Progress(token=token, frontier=Frontier([Span(TABLE)]))


def test_no_mark_is_told_between_the_begin_of_a_scan_and_the_time_of_its_rows() -> None:
    told = [(progress := saved(first(), (0, 10, True), (1, 10, True))).resolved]
    for marks in (
        [(0, 30, False), (1, 11, True)],  # the first source scans as of 30
        [(0, 40, True), (1, 12, True)],
        [(0, 41, True), (1, 30, True)],
    ):
        told.append((progress := saved(progress, *marks)).resolved)
    assert told == [Timestamp(10), Timestamp(10), Timestamp(10), Timestamp(30)]


def test_after_scans_alone_the_last_mark_stands_for_all() -> None:
    progress = saved(saved(first(), (0, 30, False), (1, 20, False)), (0, 31, True), (1, 21, True))
    assert progress.resolved == Timestamp()
    assert progress.last_mark(scans_only=True) == Timestamp(21)


def test_the_distance_of_steps_is_that_of_the_source_that_is_furthest_behind() -> None:
    one = saved(first(), (0, 50, True), (1, 10, True))
    two = saved(one, (1, 20, True))
    assert last_moved({}, one.token) == Timestamp(10)
    assert last_moved(one.token, two.token) == Timestamp(20)
    assert last_moved(two.token, two.token) is None


def test_while_one_source_scans_steps_have_no_distance() -> None:
    one = ShardedToken(shards=(ShardState(token={"n": 1}), ShardState(token={"n": 1}, resolved=Timestamp(10))))
    two = ShardedToken(shards=(ShardState(token={"n": 2}), ShardState(token={"n": 2}, resolved=Timestamp(20))))
    assert last_moved(one.to_json(), two.to_json()) is None
