"""Claims: each slice of a step is read by one task, the nearest that is left, and always by the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from cdc_testing.engine import counter_feed
from cdc_testing.stored import DEFINITION, dropped

from cdc_core import Locality, Slice, SliceInfo, Timestamp
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.host_requirements import HostRequirements
from cdc_core.engine.slices import PlannedSlice, claim, offers
from cdc_core.store.progress import ProgressStore

EU, US = Locality.parse("region=eu,zone=a"), Locality.parse("region=us,zone=a")
NAME = "t"


@pytest.fixture
def store(url: str) -> Iterator[ProgressStore]:
    with closing(ProgressStore(url)) as store:
        yield store


@pytest.fixture
def config(tmp_path: Path) -> AttemptConfig:
    """An attempt of a changefeed of a source with replicas, on a cluster."""
    feed = counter_feed(tmp_path).for_attempt(feed_id="0" * 12, epoch=1)
    source = feed.rangefeed
    replicated = dataclasses.replace(source, registration=dataclasses.replace(source.registration, replicas=True))
    return AttemptConfig(
        feed=dataclasses.replace(feed, rangefeed=replicated),
        state_dir=tmp_path,
        run_dir=tmp_path,
        requirements=HostRequirements(python="3"),
    )


def step_of(*places: Locality, step: int = 0, parts: int = 1) -> list[PlannedSlice]:
    return [
        PlannedSlice(
            slice=Slice(lower=Timestamp(1), payload=index, locality=place),
            info=SliceInfo(step=step, index=index * parts, lower=Timestamp(1)),
            slices=len(places) * parts,
            end={},
            parts=parts,
        )
        for index, place in enumerate(places)
    ]


def test_a_task_takes_the_nearest_slice_that_is_left_and_takes_it_again(
    store: ProgressStore, config: AttemptConfig
) -> None:
    offered = offers(config, step_of(US, EU, US, EU))
    here = [EU, EU, EU, US]
    taken = [claim(store, config, task, offered[task], here[task]).info.index for task in (3, 2, 0, 1)]
    assert taken == [0, 3, 1, 2]
    again = [claim(store, config, task, offered[task], US).info.index for task in (3, 2, 0, 1)]
    assert again == taken, "another attempt of a task reads the same slice, wherever it runs"


def test_a_task_takes_its_own_of_equally_near_slices_that_are_divided(
    store: ProgressStore, config: AttemptConfig
) -> None:
    offered = offers(config, step_of(US, EU, US, EU, parts=3))
    taken = [claim(store, config, task, offered[task], here).info.index for task, here in ((3, EU), (2, US), (0, US))]
    assert taken == [9, 6, 0]


def test_tasks_that_claim_at_the_same_time_take_each_slice_once(store: ProgressStore, config: AttemptConfig) -> None:
    offered = offers(config, step_of(*[EU, US] * 10))

    def run(task: int) -> int:
        own = ProgressStore(store.url)
        try:
            return claim(own, config, task, offered[task], EU).info.index
        finally:
            own.close()

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(run, range(20))) == list(range(20))


def test_claims_of_other_steps_and_attempts_do_not_count_and_are_forgotten(
    store: ProgressStore, config: AttemptConfig
) -> None:
    first, second = (offers(config, step_of(EU, US, step=step)) for step in (0, 1))
    newer = dataclasses.replace(config, feed=dataclasses.replace(config.feed, epoch=2))
    for attempt, offered in ((config, first), (config, second), (newer, second)):
        assert claim(store, attempt, 0, offered[0], US).info.index == 1
    store.planned_steps.forget_claims(NAME, before=(2, 1))
    store.planned_steps.forget_claims(NAME, before=(1, 5))  # an attempt that does not know yet that it was overtaken
    assert claim(store, config, 1, first[1], US).info.index == 1, "it was forgotten"
    assert claim(store, newer, 1, second[1], US).info.index == 0, "it was not"
    store.changefeeds.register(NAME, DEFINITION)
    dropped(store, NAME)
    assert claim(store, newer, 1, second[1], US).info.index == 1


def test_a_task_chooses_among_at_most_64_slices(config: AttemptConfig) -> None:
    offered = offers(config, step_of(*[EU, US] * 50))
    assert len(offered) == 100
    assert {tuple(each.info.index for each in choice) for choice in offered} == {
        tuple(range(64)),
        tuple(range(64, 100)),
    }
    assert all(task in [each.info.index for each in choice] for task, choice in enumerate(offered))


def test_a_task_has_no_choice_where_it_would_make_no_difference(config: AttemptConfig) -> None:
    alone = dataclasses.replace(config, requirements=HostRequirements())
    assert [len(choice) for choice in offers(alone, step_of(EU, US))] == [1, 1], "all tasks run on one host"
    assert [len(choice) for choice in offers(config, step_of(EU, EU))] == [1, 1], "all slices are at one place"
    source = config.feed.rangefeed
    plain = dataclasses.replace(source, registration=dataclasses.replace(source.registration, replicas=False))
    without = dataclasses.replace(config, feed=dataclasses.replace(config.feed, rangefeed=plain))
    assert [choice[0].info.index for choice in offers(without, step_of(EU, US))] == [0, 1]
