"""A saved plan is cut as it was, whatever cluster the next attempt has."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from cdc_testing.engine import counter_feed

from cdc_core import Slice, Timestamp
from cdc_core.config.parts import Parts
from cdc_core.engine.plans import Plans
from cdc_core.engine.start_position import register
from cdc_core.engine.step_actions import SavePlan
from cdc_core.store.progress import ProgressStore, store_url

START, END, AFTER = {"n": 0}, {"n": 1000}, Timestamp(0)


@pytest.mark.parametrize("later", [1, 3, 8])
def test_a_repeated_step_has_its_slices_whatever_the_cluster_looks_like_then(tmp_path: Path, later: int) -> None:
    feed = counter_feed(tmp_path, slices=-1)
    with closing(ProgressStore(store_url(tmp_path))) as store:
        feed_id = register(feed, store).feed_id

        def attempt(parallelism: int) -> tuple[Plans, list[Slice]]:
            own = feed.for_attempt(feed_id=feed_id, epoch=store.changefeeds.begin_attempt("t"), parallelism=parallelism)
            planner = Parts(own).open_planner()
            return Plans(own, planner, store), list(planner.slices(START, END, after=AFTER))

        plans, slices = attempt(3)
        plans.save(SavePlan(step=4, start=START, end=END, after=AFTER, slices=slices, blocked=()))
        for parallelism in (later, 5):  # a repeat that broke off is repeated too
            plans, fresh = attempt(parallelism)
            found = plans.repeat(START, after=AFTER, blocked=())
            assert found is not None
            assert (found.step, found.planned_by) == (4, 1)
            assert repr(list(found.slices)) == repr(slices)
            assert len(fresh) == parallelism
