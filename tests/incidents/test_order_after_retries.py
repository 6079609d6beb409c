"""Against real brokers: sinks/kafka/tests/test_order.py and tests/end_to_end/test_kafka_leaders.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.local_engine import LocalEngine

from cdc_core import Flushed, RetryableSinkError, RowBatch, Sink


class Refusing:
    """Stands in front of sinks: every *n*th call of `emit` or `flush` is refused, before or after it has had effect."""

    def __init__(self, n: int, *, after: bool) -> None:
        self.n, self.after, self.calls, self.refused = n, after, 0, 0

    def __call__(self, sink: Sink) -> Sink:
        emit, flush = sink.emit, sink.flush

        def emitting(rows: RowBatch) -> None:
            self._call(lambda: emit(rows))

        def flushing() -> Flushed:
            done: Flushed = self._call(flush)
            return done

        sink.emit, sink.flush = emitting, flushing  # type: ignore[method-assign]
        return sink

    def _call(self, call: Callable[[], Any]) -> Any:
        self.calls += 1
        refuse = self.calls % self.n == 0
        outcome = call() if self.after or not refuse else None
        if refuse:
            self.refused += 1
            raise RetryableSinkError("the destination is busy")
        return outcome


@pytest.mark.parametrize(("n", "after"), [(5, False), (7, True)], ids=["before it took effect", "after it took effect"])
def test_versions_of_a_hot_key_keep_their_order_when_the_destination_refuses_and_the_step_is_repeated(
    db: SimulatedDatabase,
    engine: Callable[..., LocalEngine],
    faults: Callable[..., list[str]],
    n: int,
    after: bool,
) -> None:
    """A122372: messages of one key changed places when some of them were sent again after retriable errors."""
    db.create_table("t")
    refusing = Refusing(n, after=after)
    feed = engine("t", options={"max_step_rows": 3, "batch_rows": 1}, wrap_sink=refusing)
    feed.run()
    for version in range(30):
        db.put("t", id=1, n=version, node=version % 2 + 1)
    target = db.settle()
    while feed.high_water < target:
        try:
            feed.step()
        except RetryableSinkError:
            db.put("t", id=2, n=refusing.refused)
            feed.run()
    assert refusing.refused > 3
    assert faults(["t"]) == []
