"""The step in progress of each changefeed: its plan, and which task reads which slice where tasks choose."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from cdc_core.errors import RetryableError
from cdc_core.store.database import Aggregate
from cdc_core.store.tables import CHANGEFEEDS, CLAIMS
from cdc_core.store.values import dump

MOVED: Mapping[str, Any] = {"moved": True}
"""In place of a plan: the changefeed was moved at its source, and no run has begun to deliver since."""


class _OvertakenError(Exception):
    """Another task took the slice at the same time."""


class PlannedSteps(Aggregate):
    """The plan that each changefeed saved last, and the claims of its step."""

    def save_plan(self, name: str, epoch: int, plan: Mapping[str, Any]) -> None:
        """Save *plan*, JSON of the engine's, in place of the previous one. Raises: FencedError."""
        self._database.write(name, epoch, plan=dump(plan))

    def load_plan(self, name: str) -> Mapping[str, Any] | None:
        """Return the plan that was saved last, None when none was."""
        saved = sa.select(CHANGEFEEDS.c.plan).where(CHANGEFEEDS.c.name == name)
        with self._database.transaction(reading=True) as connection:
            text = connection.execute(saved).scalar_one_or_none()
        return None if text is None else dict(json.loads(text))

    def was_moved(self, name: str) -> bool:
        """Return whether the changefeed was moved, and no plan was saved since."""
        return self.load_plan(name) == MOVED

    def claim_slice(self, name: str, epoch: int, step: int, *, task: int, preferred: Sequence[int]) -> int:
        """Return the slice of *task*: the one that it claimed before, otherwise the first of *preferred* that is free.

        *preferred* has as many slices as there are tasks that ask, so that each of them gets one.
        """
        while True:  # each time another task has made progress
            try:
                return self._claim(name, epoch, step, task=task, preferred=preferred)
            except _OvertakenError:
                continue

    def forget_claims(self, name: str, *, before: tuple[int, int]) -> None:
        """Delete the changefeed's claims of earlier epochs, and of earlier steps of this epoch."""
        epoch, step = before
        earlier = sa.or_(CLAIMS.c.epoch < epoch, sa.and_(CLAIMS.c.epoch == epoch, CLAIMS.c.step < step))
        with self._database.transaction() as connection:
            connection.execute(sa.delete(CLAIMS).where(CLAIMS.c.name == name, earlier))

    def _claim(self, name: str, epoch: int, step: int, *, task: int, preferred: Sequence[int]) -> int:
        of_step = {"name": name, "epoch": epoch, "step": step}
        claims = sa.select(CLAIMS.c.task, CLAIMS.c.slice).filter_by(**of_step)
        with self._database.transaction() as connection:
            claimed = {found.task: found.slice for found in connection.execute(claims)}
            if task in claimed:
                return int(claimed[task])
            taken = set(claimed.values())
            chosen = next((index for index in preferred if index not in taken), None)
            if chosen is None:
                raise RetryableError(f"changefeed '{name}': no slice of step {step} is left for task {task}")
            try:
                connection.execute(sa.insert(CLAIMS).values(**of_step, slice=chosen, task=task))
            except sa.exc.IntegrityError as error:
                raise _OvertakenError from error
            return chosen
