"""Notices that other versions are installed than when a process began, as after `pip install` beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

_POLL_INTERVAL_S = 60.0


class VersionWatch:
    """Watches what *installed* returns: versions by distribution. `first` is what that was at the beginning."""

    def __init__(self, installed: Callable[[], Mapping[str, str]]) -> None:
        self._installed = installed
        self.first = self._last = installed()
        self._poll_at = time.monotonic() + _POLL_INTERVAL_S

    def has_changed(self) -> bool:
        """Return whether the versions are others than at first, and have been for a minute: an installation takes time.

        Looks once a minute, and returns False in between. Cheap.
        """
        if (now := time.monotonic()) < self._poll_at:
            return False
        self._poll_at = now + _POLL_INTERVAL_S
        last, self._last = self._last, self._installed()
        return last == self._last != self.first
