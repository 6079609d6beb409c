from __future__ import annotations

import threading
import time
from typing import Any

from cdc_sink_webhook.outbox import Outbox


class FakeDelivery:
    """A delivery without requests."""

    async def aclose(self) -> None:
        pass


def test_only_one_timer_runs_at_a_time() -> None:
    delivery: Any = FakeDelivery()
    outbox = Outbox(lambda _: delivery, parallel=1, max_bytes=1)
    calls: list[float] = []
    again = threading.Event()
    begun = time.monotonic()
    for _ in range(50):
        outbox.later(1.0, lambda: calls.append(time.monotonic()))
    while not calls:
        assert time.monotonic() < begun + 120
        again.wait(0.01)
    outbox.later(0.2, again.set)
    assert again.wait(120)
    outbox.close()
    assert len(calls) == 1
