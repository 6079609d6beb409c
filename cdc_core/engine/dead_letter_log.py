"""What the log of a run says about rows that are put aside."""

from __future__ import annotations

import logging

from cdc_core.store.progress import ProgressStore

__all__ = ["DeadLetterLog"]

log = logging.getLogger(__name__)

_MOST_TOLD = 10
"""Of the rows that were put aside since the last look, this many are logged one by one."""


class DeadLetterLog:
    """Warns, in the driver, of each row that changefeed *name* puts aside from now on."""

    def __init__(self, name: str, store: ProgressStore) -> None:
        self._name = name
        self._store = store
        self._told = max((letter.number for letter in store.dead_letters(name)), default=0)

    def look(self) -> int:
        """Log what is new, and return how many rows wait in the dead letters. Raises: RetryableError."""
        waiting = self._store.dead_letters(self._name)
        new = [letter for letter in waiting if letter.number > self._told]
        for letter in new[:_MOST_TOLD]:
            log.warning(
                "changefeed '%s': row of table %s with key %s, updated %s, was put aside (stage %s): %s",
                self._name,
                letter.table,
                letter.key,
                letter.updated,
                letter.stage,
                letter.error,
            )
        if len(new) > _MOST_TOLD:
            log.warning("changefeed '%s': and %d more rows were put aside", self._name, len(new) - _MOST_TOLD)
        if new:
            self._told = new[-1].number
        return len(waiting)
