"""Moves of a changefeed with several sources: each has a position of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_conformance.simulated.rangefeed import SimulatedRangefeed
from cdc_conformance.simulated.source import SimulatedOptions

from cdc_core import ConfigError, RangefeedContext, Token
from cdc_core.changefeeds.moving import target_of
from cdc_core.shards.rangefeed import ShardedRangefeed
from cdc_core.shards.token import ShardedToken
from cdc_core.store.progress import ChangefeedRecord


@pytest.fixture
def databases(tmp_path: Path) -> list[SimulatedDatabase]:
    found = [SimulatedDatabase.create(tmp_path / name) for name in ("a", "b")]
    for database in found:
        database.create_table("t")
    return found


@pytest.fixture
def feed(databases: list[SimulatedDatabase]) -> Iterator[ShardedRangefeed]:
    sources = [f"simulated://{database.directory}" for database in databases]
    context = RangefeedContext(
        changefeed="t", feed_id="0123456789ab", uri="", tables=("t",), options=SimulatedOptions(), initial_scan=False
    )
    opened = ShardedRangefeed(context, SimulatedRangefeed, sources)
    yield opened
    opened.close()


@pytest.fixture
def saved(feed: ShardedRangefeed, databases: list[SimulatedDatabase]) -> Token:
    token = feed.start(None, lambda _: None)
    for database in databases:
        database.put("t", id=1, n=0)
    return token


def known(feed: ShardedRangefeed) -> ChangefeedRecord:
    sources = [f"simulated://{name}" for name in ("a", "b")]
    return ChangefeedRecord(name="t", feed_id=feed.context.feed_id, epoch=1, definition={"source": sources})


def moved(before: Token, after: Token) -> list[bool]:
    shards = [ShardedToken.from_json(token).shards for token in (before, after)]
    return [old.token != new.token for old, new in zip(*shards, strict=True)]


def test_a_time_moves_all_of_them(feed: ShardedRangefeed, saved: Token) -> None:
    found = feed.move(saved, "now")
    assert moved(saved, found.token) == [True, True]
    assert "/a, " in found.after
    assert found.after.endswith("/b"), "each position is said of its source"


def test_one_of_them_is_moved_alone(feed: ShardedRangefeed, saved: Token) -> None:
    found = feed.move(saved, target_of(known(feed), {1: "now"}))
    assert moved(saved, found.token) == [False, True]
    assert "/a" not in found.after


def test_a_position_of_one_is_not_taken_for_all(feed: ShardedRangefeed, saved: Token) -> None:
    with pytest.raises(ConfigError, match="a position belongs to a single source; name that source"):
        feed.move(saved, "16/B374D848")


def test_if_one_refuses_none_is_moved(feed: ShardedRangefeed, databases: list[SimulatedDatabase], saved: Token) -> None:
    databases[1].add_column("t", "c", default="x")
    with pytest.raises(ConfigError, match=r"source simulated://.*/b: .* when the shape of sim.public.t changes"):
        feed.move(saved, "now")
