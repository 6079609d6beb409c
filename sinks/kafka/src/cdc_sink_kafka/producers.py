"""The producers of a sink: one for most rows, and one that gets a report of each message, for rows that are traced."""

from __future__ import annotations

import time
from collections.abc import Callable

from cdc_sink_kafka.ordered_producer import OrderedProducer

_KEPT_S = 60.0


class Producers:
    """Opens producers when rows need them. At most one has messages that are not acknowledged, so their order holds.

    Reports of every message cost about as much as the rest. A new producer takes half a second until its first message
    is acknowledged. So the one for traced rows stays open until it was not used for a minute. *open_producer* gets
    whether the producer is to have such reports.
    """

    def __init__(self, open_producer: Callable[[bool], OrderedProducer]) -> None:
        self._open_producer = open_producer
        self._open: dict[bool, OrderedProducer] = {}
        self._used: bool | None = None
        self._traced_at = 0.0

    def of_rows(self, *, traced: bool) -> OrderedProducer:
        """Return the producer for the next rows, after a flush if the rows before them have another one.

        Raises: what a flush raises.
        """
        if traced:
            self._traced_at = time.monotonic()
        if self._used is None or (traced and not self._used):
            self.flush()
            if traced not in self._open:
                self._open[traced] = self._open_producer(traced)
            self._used = traced
        return self._open[self._used]

    def flush(self) -> None:
        """Return when every message is acknowledged. Raises: as `OrderedProducer.flush`."""
        if self._used is not None:
            self._open[self._used].flush()
        self._used = None
        if True in self._open and time.monotonic() - self._traced_at > _KEPT_S:
            self._open.pop(True).close()

    def close(self) -> None:
        """Drop what is not acknowledged. Does not wait for brokers."""
        self._used = None
        while self._open:
            self._open.popitem()[1].close()
