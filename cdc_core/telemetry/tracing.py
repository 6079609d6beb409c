"""Changes that are traced: what a sink and an encoder may say of them while a slice is delivered."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from cdc_core.rows import RowBatch

__all__ = ["SliceTrace", "TracedRow"]


class TracedRow:
    """One change on its way through a sink. `moments` has when it reached each stage, in seconds since 1970.

    `place` is where at the destination it is, as far as the sink says so. For one process; nothing of it is durable.
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
        """Note that the destination has taken the change, and where it is. Unless a sink says so, a flush means it."""
        self.place.update(place)
        self.reached("acknowledged")


class SliceTrace(Protocol):
    """The traced changes of a slice."""

    def rows_in(self, rows: RowBatch) -> Sequence[tuple[int, TracedRow]]:
        """Return those that are among *rows*, each with its index."""
