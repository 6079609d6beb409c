"""Histories with wrong or missing metadata in a row."""

from __future__ import annotations

from dataclasses import replace

from cdc_testing.histories import Event
from cdc_testing.spoiling import Expected, sabotage
from cdc_testing.spots import Spot

from cdc_core import Timestamp


@sabotage
def an_mvcc_timestamp_after_updated(spot: Spot) -> tuple[list[Event], Expected]:
    mvcc = spot.row.updated.next()
    text = f"{spot.described}: mvcc timestamp {mvcc} is after it"
    spot.rows[spot.index] = replace(spot.row, mvcc=mvcc)
    return spot.history.events(), {"mvcc": [text]}


@sabotage
def an_mvcc_timestamp_long_before_updated(spot: Spot) -> tuple[list[Event], Expected]:
    mvcc = Timestamp(spot.row.updated.wall - 3_600_000_000_001)
    text = f"{spot.described}: mvcc timestamp {mvcc} is more than 3600 s before it"
    spot.rows[spot.index] = replace(spot.row, mvcc=mvcc)
    return spot.history.events(), {"mvcc": [text]}


@sabotage
def a_missing_mvcc_timestamp(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.described}: has no mvcc timestamp"
    spot.rows[spot.index] = replace(spot.row, mvcc=None)
    return spot.history.events(), {"mvcc": [text]}


@sabotage
def a_wrong_key_in_the_value(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.described}: the key in its value is [99]"
    spot.rows[spot.index] = replace(spot.row, key_in_value=(99,))
    return spot.history.events(), {"key_in_value": [text]}


@sabotage
def a_missing_key_in_the_value(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.described}: has no key in its value"
    spot.rows[spot.index] = replace(spot.row, key_in_value=None)
    return spot.history.events(), {"key_in_value": [text]}


@sabotage
def a_wrong_topic_in_the_value(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.described}: the topic in its value is w"
    spot.rows[spot.index] = replace(spot.row, topic_in_value="w")
    return spot.history.events(), {"topic": [text]}


@sabotage
def a_missing_topic_in_the_value(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.described}: has no topic in its value"
    spot.rows[spot.index] = replace(spot.row, topic_in_value=None)
    return spot.history.events(), {"topic": [text]}
