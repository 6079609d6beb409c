"""How far apart steps are while an open transaction makes each of them decode log again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cdc_rangefeed_postgres.connection import Connection

__all__ = ["Pacing"]

_AGAIN_S_PER_BYTE = 0.26 / (100 << 20)
"""About twice what decoding takes, so that decoding again takes half a core at most."""
_MIN_BYTES = 64 << 20
_POLL_INTERVAL_S = 1.0
_AGAIN = """
SELECT pg_wal_lsn_diff(confirmed_flush_lsn, restart_lsn)::bigint FROM pg_replication_slots WHERE slot_name = %s
"""


class Pacing:
    """Decides when the next step of *slot* may begin. *clock* is monotonic."""

    def __init__(self, slot: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._slot = slot
        self._clock = clock
        self._poll_at = float("-inf")
        self._again_bytes = 0
        self._not_before = float("-inf")

    @property
    def too_early(self) -> bool:
        """Whether the step that was planned last is so recent that another one would cost the server too much."""
        return self._clock() < self._not_before

    def planned(self, connection: Connection) -> None:
        """Note that a step begins now."""
        now = self._clock()
        if now >= self._poll_at:
            self._poll_at = now + _POLL_INTERVAL_S
            row: Any = connection.execute(_AGAIN, [self._slot]).fetchone()
            self._again_bytes = (row[0] or 0) if row is not None else 0
        wait_s = self._again_bytes * _AGAIN_S_PER_BYTE if self._again_bytes >= _MIN_BYTES else 0.0
        self._not_before = now + wait_s
