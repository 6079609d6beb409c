from __future__ import annotations

import random
from collections.abc import Collection

import numpy as np
from cdc_sink_webhook.key_order import KeyOrder, QueuedRequest
from cdc_sink_webhook.request import Request
from hypothesis import given
from hypothesis import strategies as st

NOTHING = np.empty(0, np.int64)


def request(keys: Collection[int], *, topic: str = "orders") -> Request:
    return Request(id="", topic=topic, body=b"", row_numbers=NOTHING, lengths=NOTHING, keys=frozenset(keys))


def start_all(order: KeyOrder) -> list[QueuedRequest]:
    started = []
    while (queued := order.start()) is not None:
        started.append(queued)
    return started


def test_equal_keys_of_different_topics_are_independent() -> None:
    order = KeyOrder()
    order.add(request({1}))
    order.add(request({1}, topic="users"))
    assert len(start_all(order)) == 2


@given(st.lists(st.sets(st.integers(0, 6), max_size=4), max_size=30), st.integers(0, 2**32))
def test_a_request_starts_if_and_only_if_no_earlier_one_shares_a_key(keys: list[set[int]], seed: int) -> None:
    dice = random.Random(seed)
    order = KeyOrder()
    left = [request(some) for some in keys]
    queued: list[Request] = []
    in_flight: list[QueuedRequest] = []
    while left or queued or in_flight:
        if left and dice.random() < 0.5:
            queued.append(left[0])
            order.add(left.pop(0))
        elif in_flight:
            order.done(in_flight.pop(dice.randrange(len(in_flight))))
        may_start, busy = [], {key for started in in_flight for key in started.request.keys}
        for waiting in queued:
            if not waiting.keys & busy:
                may_start.append(waiting)
            busy |= waiting.keys
        started_now = start_all(order)
        assert {id(started.request) for started in started_now} == {id(waiting) for waiting in may_start}
        in_flight += started_now
        queued = [waiting for waiting in queued if waiting not in may_start]
