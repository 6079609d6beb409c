"""Moves of changefeeds, as they are planned for any source: what is told of them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cdc_testing.engine import counter_feed

from cdc_core import Timestamp, Token
from cdc_core.changefeeds.moving import PlannedMove
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.engine.start_position import register
from cdc_core.errors import ConfigError
from cdc_core.frontier import Frontier
from cdc_core.shards.token import ShardedToken, ShardState
from cdc_core.span import Span
from cdc_core.store.progress import Progress, ProgressStore, store_url

Plan = Callable[[str | Token], PlannedMove]


def planning(directory: Path, token: Token, *, latest: int, end: int | None = None, sources: int = 1) -> Plan:
    """Return what plans the moves of a changefeed that was saved at *token*, and was read up to *latest*."""
    feed = counter_feed(directory, sources=tuple(f"counter://{index}" for index in range(sources)))
    store = ProgressStore(store_url(directory))
    register(feed, store)
    epoch = store.changefeeds.begin_attempt(feed.name)
    frontier = Frontier([Span("db.public.counter")])
    store.progress.save(feed.name, epoch, Progress(token=token, frontier=frontier, latest=Timestamp(latest)))
    ends = None if end is None else Timestamp(end)
    feed = replace(feed, options=replace(feed.options, end_time=None if ends is None else str(ends)))
    return lambda to: Changefeeds(store).plan_move(feed, to)


def sharded(*numbers: int) -> Token:
    shards = tuple(ShardState(token={"n": n}, latest=Timestamp(n)) for n in numbers)
    return ShardedToken(shards=shards).to_json()


def test_what_is_told_of_several_sources_names_both_directions(tmp_path: Path) -> None:
    plan = planning(tmp_path, sharded(50, 70), latest=70, sources=2)
    both = plan(str(Timestamp(60)))
    assert (both.move.forward, both.move.back) == (True, True)
    assert both.effect == (
        "changes in between are NOT delivered by sources that move forward, and are delivered again by those that"
        " move back"
    )
    assert plan(str(Timestamp(90))).effect == "changes in between are NOT delivered"
    assert plan(str(Timestamp(40))).effect == "changes in between are delivered again"
    assert plan(sharded_targets({"n": 50}, None)).effect == "nothing is skipped or repeated"


def sharded_targets(*targets: Token | None) -> Token:
    return ShardedToken.targets(targets)


def test_what_was_read_up_to_end_time_does_not_go_back(tmp_path: Path) -> None:
    plan = planning(tmp_path, {"n": 60}, latest=60, end=60)
    with pytest.raises(
        ConfigError,
        match=r"^changefeed 't' cannot be moved back: it has already read up to"
        r" end_time, 60\.0",
    ):
        plan({"n": 50})
    assert plan({"n": 70}).move.forward


def test_before_end_time_it_goes_back(tmp_path: Path) -> None:
    assert planning(tmp_path, {"n": 60}, latest=60, end=61)({"n": 50}).move.back


def test_of_several_sources_each_has_its_own_way_to_end_time(tmp_path: Path) -> None:
    plan = planning(tmp_path, sharded(60, 50), latest=60, end=60, sources=2)
    with pytest.raises(ConfigError, match="cannot be moved back"):
        plan(sharded_targets({"n": 40}, None))
    assert plan(sharded_targets(None, {"n": 40})).move.back
