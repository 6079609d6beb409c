"""Which task reads which slice. Where slices have localities, each task takes the nearest that is left.

Spark gives no say in which executor gets which task. So a task of a step is not a slice but a choice of slices: it
claims one of them in the store, for good, so that another attempt of the task reads the same. The slices of a step and
their numbers do not change by this, and the bound on the choice keeps tasks small however many slices a step has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.slices import PlannedSlice
from cdc_core.locality import Locality

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

__all__ = ["claim", "offers"]

_MAX_CLAIMED = 64
"""How many slices a task may choose from."""


def offers(config: AttemptConfig, planned: Sequence[PlannedSlice]) -> list[tuple[PlannedSlice, ...]]:
    """Return for each task the slices from which it takes one: its own alone where there is nothing to choose.

    There is something where the source keeps replicas, the slices are at different places, and not all tasks run on the
    driver's host. A task chooses among the slices of as many tasks, so that each gets one.
    """
    places = {each.slice.locality for each in planned if each.slice is not None}
    chooses = config.feed.rangefeed.registration.replicas and config.runs_on_other_hosts and len(places) > 1
    size = _MAX_CLAIMED if chooses else 1
    firsts = (task - task % size for task in range(len(planned)))
    return [tuple(planned[first : first + size]) for first in firsts]


def claim(
    store: ProgressStore, config: AttemptConfig, task: int, offered: Sequence[PlannedSlice], here: Locality
) -> PlannedSlice:
    """Return the slice that *task*, on an executor at *here*, reads. Raises: RetryableError.

    The nearest one that no other task has; of equally near ones first its own, so that tasks do not meet.
    """
    step, own = offered[0].info.step, task - offered[0].info.index

    def distance(index: int) -> tuple[int, int]:
        slice_ = offered[index].slice
        assert slice_ is not None
        return -here.common(slice_.locality), (index - own) % len(offered)

    preferred = [offered[index].info.index for index in sorted(range(len(offered)), key=distance)]
    chosen = store.steps.claim_slice(config.feed.name, config.feed.epoch, step, task=task, preferred=preferred)
    return next(each for each in offered if each.info.index == chosen)
