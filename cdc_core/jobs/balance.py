"""When a node that has more than its share of the jobs gives one to a node that has joined."""

from __future__ import annotations

import time
from collections.abc import Mapping

from cdc_core.jobs.adoption import surplus
from cdc_core.jobs.running_job import RunningJob
from cdc_core.store.job_values import RUNNABLE, NodeRecord, Overview

__all__ = ["Balance"]

_SETTLED_POLLS = 30
"""For so many polls all jobs have a node, and this one has too many, before one is moved: no move for a short stay."""
_STAYS_S = 3600.0
"""How long a job that was moved is not moved again by this node: the other may not have been able to run it."""


class Balance:
    """Remembers since when a node has had more than its share, and what it has moved."""

    def __init__(self) -> None:
        self._polls = 0
        self._moved: dict[str, float] = {}

    def next_move(
        self, overview: Overview, me: NodeRecord, running: Mapping[str, RunningJob]
    ) -> tuple[str, NodeRecord] | None:
        """Return a job that node *me* is to move now, and the node that is to have it. Called at each poll.

        One at a time, and none that is still starting.
        """
        now = time.monotonic()
        self._moved = {name: at for name, at in self._moved.items() if now - at < _STAYS_S}
        movable = [name for name, each in running.items() if each.is_movable and name not in self._moved]
        busy = any(job.state in RUNNABLE and job.node is None for job in overview.jobs)
        busy = busy or any(each.moves_to is not None for each in running.values())
        found = None if busy else surplus(overview, me, movable)
        self._polls = 0 if found is None else self._polls + 1
        if found is None or self._polls < _SETTLED_POLLS:
            return None
        self._polls = 0
        self._moved[found[0]] = now
        return found
