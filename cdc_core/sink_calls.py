"""What a part of a sink reports to the engine during a call."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from cdc_core.rows import RowBatch


class TracedRow:
    """A traced change on its way through a sink. `moments` has the time of each stage, in seconds since 1970.

    `place` is the place of the change at the destination, if the sink reports it. Both exist only in this process.
    """

    __slots__ = ("moments", "place")

    def __init__(self) -> None:
        self.moments: dict[str, float] = {}
        self.place: dict[str, Any] = {}

    def reached(self, stage: str) -> None:
        """Note that the change is at *stage* now."""
        self.moments[stage] = time.time()

    def placed(self, **place: Any) -> None:
        """Note where the change will be once it is durable, such as `file="…"`: JSON values without secrets."""
        self.place.update(place)

    def acknowledged(self, **place: Any) -> None:
        """Note that the destination has taken the change, and where it is.

        Without this call, `flush` counts as the acknowledgement.
        """
        self.place.update(place)
        self.reached("acknowledged")


class CallObserver(Protocol):
    """Receives what a part of a sink reports. `SinkContext` says what each method means."""

    def repeating(self, reason: str, *, next_attempt_s: float) -> AbstractContextManager[None]: ...

    def traced_rows(self, rows: RowBatch) -> Sequence[tuple[int, TracedRow]]: ...


class ObservedCalls:
    """Connects what was built from one `SinkContext` to the observer of the present call, if there is one.

    The engine sets the observer. A sink uses the methods of its context.
    """

    def __init__(self) -> None:
        self.observer: CallObserver | None = None

    @contextmanager
    def observed_by(self, observer: CallObserver) -> Iterator[None]:
        """Let *observer* receive what is reported inside the block."""
        before, self.observer = self.observer, observer
        try:
            yield
        finally:
            self.observer = before

    def __reduce__(self) -> tuple[type[ObservedCalls], tuple[()]]:
        return ObservedCalls, ()  # another process has an observer of its own
