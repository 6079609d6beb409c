"""The stop flag: how a driver asks the planner, in another process, to plan no further step."""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["StopFlag"]

_POLL_S = 0.05


class StopFlag:
    """Two files in the directory of an attempt: the driver's request and the planner's answer.

    The planner calls `acknowledge` between steps only. After that no step runs, and none will.
    """

    def __init__(self, directory: Path) -> None:
        self._request = directory / "stop"
        self._answer = directory / "stopped"

    def request(self) -> None:
        self._request.touch()

    @property
    def requested(self) -> bool:
        return self._request.exists()

    def wait(self, seconds: float) -> None:
        """Return after *seconds*, or soon after the request."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self.requested:
            time.sleep(min(left, _POLL_S))

    def acknowledge(self) -> None:
        self._answer.touch()

    @property
    def acknowledged(self) -> bool:
        return self._answer.exists()
