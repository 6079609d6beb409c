"""How far apart steps are while an open transaction makes each of them decode log again."""

from __future__ import annotations

import time
from collections.abc import Callable

from cdc_rangefeed_postgres.kept_log import MIN_AGAIN_BYTES, KeptLog

_AGAIN_S_PER_BYTE = 0.26 / (100 << 20)
"""About twice what decoding takes, so that decoding again takes half a core at most."""


class Pacing:
    """Decides when the next step may begin. *clock* is monotonic."""

    def __init__(self, kept: KeptLog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept = kept
        self._clock = clock
        self._not_before = float("-inf")

    @property
    def too_early(self) -> bool:
        """Whether the step that was planned last is so recent that another one would cost the server too much."""
        return self._clock() < self._not_before

    def planned(self, start: int, end: int) -> None:
        """Note that a step between these positions begins now."""
        again = self._kept.again_bytes
        costs = again >= MIN_AGAIN_BYTES and not self._kept.serves(start, end)
        self._not_before = self._clock() + (again * _AGAIN_S_PER_BYTE if costs else 0.0)
