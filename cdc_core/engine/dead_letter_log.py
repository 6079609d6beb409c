"""Log lines about new dead letters."""

from __future__ import annotations

import logging

from cdc_core.store.progress import ProgressStore

__all__ = ["DeadLetterLog"]

log = logging.getLogger(__name__)

_MAX_LOGGED = 10
"""Maximum number of new dead letters that are logged individually."""


class DeadLetterLog:
    """Warns, in the driver, of each row of changefeed *name* that becomes a dead letter from now on."""

    def __init__(self, name: str, store: ProgressStore) -> None:
        self._name = name
        self._store = store
        self._logged = max((letter.number for letter in store.dead_letters.of(name)), default=0)

    def poll(self) -> int:
        """Log the new ones, and return how many dead letters there are. Raises: RetryableError."""
        waiting = self._store.dead_letters.of(self._name)
        new = [letter for letter in waiting if letter.number > self._logged]
        for letter in new[:_MAX_LOGGED]:
            log.warning(
                "changefeed '%s': refused the row of table %s with key %s, updated %s (stage %s): %s",
                self._name,
                letter.table,
                letter.key,
                letter.updated,
                letter.stage,
                letter.error,
            )
        if len(new) > _MAX_LOGGED:
            log.warning("changefeed '%s': refused %d more rows", self._name, len(new) - _MAX_LOGGED)
        if new:
            self._logged = new[-1].number
        return len(waiting)
