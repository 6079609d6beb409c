"""Which changefeeds are paused, and why."""

from __future__ import annotations

from cdc_core.store.database import Database
from cdc_core.store.events import add_event
from cdc_core.store.tables import CHANGEFEEDS, update
from cdc_core.store.values import dump, now_text

__all__ = ["Pauses"]


class Pauses(Database):
    """The pause of each changefeed, until it is resumed."""

    def pause(self, name: str, epoch: int, reason: str) -> None:
        """Save that the changefeed is paused, and why. Raises: FencedError."""
        with self._fenced(name, epoch, paused=dump({"reason": reason, "since": now_text()})) as connection:
            add_event(connection, "changefeed_paused", name, message=reason)

    def resume(self, name: str) -> bool:
        """Resume the changefeed; return whether it was paused."""
        with self._transaction() as connection:
            paused = CHANGEFEEDS.c.paused.is_not(None)
            resumed = bool(connection.execute(update(name).where(paused).values(paused=None)).rowcount)
            if resumed:
                add_event(connection, "changefeed_resumed", name)
            return resumed
