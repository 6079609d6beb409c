"""The plan of the step in progress of each changefeed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from cdc_core.store.database import Database
from cdc_core.store.tables import CHANGEFEEDS
from cdc_core.store.values import dump

__all__ = ["MOVED", "Plans"]

MOVED: Mapping[str, Any] = {"moved": True}
"""In place of a plan: the changefeed was moved at its source, and no run has begun to deliver since."""


class Plans(Database):
    """The plan that each changefeed saved last."""

    def save_plan(self, name: str, epoch: int, plan: Mapping[str, Any]) -> None:
        """Save *plan*, JSON of the engine's, in place of the previous one. Raises: FencedError."""
        self._write(name, epoch, plan=dump(plan))

    def load_plan(self, name: str) -> Mapping[str, Any] | None:
        """Return the plan that was saved last, None when none was."""
        saved = sa.select(CHANGEFEEDS.c.plan).where(CHANGEFEEDS.c.name == name)
        with self._transaction(reading=True) as connection:
            text = connection.execute(saved).scalar_one_or_none()
        return None if text is None else dict(json.loads(text))

    def was_moved(self, name: str) -> bool:
        """Return whether the changefeed was moved, and no plan was saved since."""
        return self.load_plan(name) == MOVED
