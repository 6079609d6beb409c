from __future__ import annotations

import random
from collections.abc import Collection

import numpy as np
from cdc_sink_webhook.key_order import KeyOrder, Turn
from cdc_sink_webhook.request import Request
from hypothesis import given
from hypothesis import strategies as st

NOTHING = np.empty(0, np.int64)


def request(keys: Collection[int], *, topic: str = "orders") -> Request:
    return Request(id="", topic=topic, body=b"", places=NOTHING, lengths=NOTHING, keys=frozenset(keys))


def begun(order: KeyOrder) -> list[Turn]:
    turns = []
    while (turn := order.begin()) is not None:
        turns.append(turn)
    return turns


def test_requests_that_share_no_key_begin_at_once() -> None:
    order = KeyOrder()
    for keys in ({1, 2}, {3}, {4, 5}):
        order.add(request(keys))
    assert [turn.request.keys for turn in begun(order)] == [{1, 2}, {3}, {4, 5}]


def test_a_request_waits_for_one_that_waits() -> None:
    order = KeyOrder()
    for keys in ({1}, {1, 2}, {2, 3}, {3}):
        order.add(request(keys))
    seen = []
    while turns := begun(order):
        assert len(turns) == 1
        seen.append(turns[0].request.keys)
        order.done(turns[0])
    assert seen == [{1}, {1, 2}, {2, 3}, {3}]


def test_keys_of_different_topics_have_nothing_to_do_with_each_other() -> None:
    order = KeyOrder()
    order.add(request({1}))
    order.add(request({1}, topic="users"))
    assert len(begun(order)) == 2


@given(st.lists(st.sets(st.integers(0, 6), max_size=4), max_size=30), st.integers(0, 2**32))
def test_exactly_those_begin_that_share_nothing_with_any_before_them(keys: list[set[int]], seed: int) -> None:
    dice = random.Random(seed)
    order = KeyOrder()
    left = [request(some) for some in keys]
    queued: list[Request] = []
    under_way: list[Turn] = []
    while left or queued or under_way:
        if left and dice.random() < 0.5:
            queued.append(left[0])
            order.add(left.pop(0))
        elif under_way:
            order.done(under_way.pop(dice.randrange(len(under_way))))
        may_begin, busy = [], {key for turn in under_way for key in turn.request.keys}
        for waiting in queued:
            if not waiting.keys & busy:
                may_begin.append(waiting)
            busy |= waiting.keys
        turns = begun(order)
        assert {id(turn.request) for turn in turns} == {id(waiting) for waiting in may_begin}
        under_way += turns
        queued = [waiting for waiting in queued if waiting not in may_begin]
