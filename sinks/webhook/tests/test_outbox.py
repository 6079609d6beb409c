from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

from cdc_sink_webhook.outbox import Outbox


class FakeDelivery:
    """A delivery without requests."""

    async def aclose(self) -> None:
        pass


def unheard(_: str, *, next_attempt_s: float) -> nullcontext[None]:
    return nullcontext()


def test_only_one_timer_runs_at_a_time() -> None:
    delivery: Any = FakeDelivery()
    outbox = Outbox(lambda _: delivery, parallel=1, max_bytes=1, repeating=unheard)
    calls: list[int] = []
    holding, released, first, again = (threading.Event() for _ in range(4))

    def hold() -> None:
        holding.set()
        assert released.wait(120)

    def call() -> None:
        calls.append(1)
        first.set()

    outbox.later(0.0, hold)
    assert holding.wait(120)
    for _ in range(50):  # while its thread cannot call any of them, however long this takes
        outbox.later(0.1, call)
    released.set()
    assert first.wait(120)
    outbox.later(0.2, again.set)
    assert again.wait(120)
    outbox.close()
    assert len(calls) == 1
