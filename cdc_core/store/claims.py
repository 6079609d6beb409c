"""Which task of a step reads which slice, where tasks choose."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from cdc_core.errors import RetryableError
from cdc_core.store.database import Database
from cdc_core.store.tables import CLAIMS

__all__ = ["Claims"]


class _OvertakenError(Exception):
    """Another task took the slice at the same time."""


class Claims(Database):
    """The claims of each changefeed's step in progress."""

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
        with self._transaction() as connection:
            connection.execute(sa.delete(CLAIMS).where(CLAIMS.c.name == name, earlier))

    def _claim(self, name: str, epoch: int, step: int, *, task: int, preferred: Sequence[int]) -> int:
        of_step = {"name": name, "epoch": epoch, "step": step}
        claims = sa.select(CLAIMS.c.task, CLAIMS.c.slice).filter_by(**of_step)
        with self._transaction() as connection:
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
