"""Histories with rows whose other fields do not say what the row is."""

from __future__ import annotations

from dataclasses import replace

from cdc_testing.histories import Event
from cdc_testing.spoiling import Expected, sabotage
from cdc_testing.spots import Spot

from cdc_core import Timestamp


@sabotage
def an_mvcc_timestamp_after_updated(spot: Spot) -> tuple[list[Event], Expected]:
    mvcc = spot.row.updated.next()
    text = f"{spot.said}: mvcc timestamp {mvcc} is after it"
    spot.rows[spot.index] = replace(spot.row, mvcc=mvcc)
    return spot.history.events(), {"mvcc": [text]}


@sabotage
def an_mvcc_timestamp_too_long_before(spot: Spot) -> tuple[list[Event], Expected]:
    mvcc = Timestamp(spot.row.updated.wall - 3_600_000_000_001)
    text = f"{spot.said}: mvcc timestamp {mvcc} is more than 3600 s before it"
    spot.rows[spot.index] = replace(spot.row, mvcc=mvcc)
    return spot.history.events(), {"mvcc": [text]}


@sabotage
def an_mvcc_timestamp_that_is_missing(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.said}: has no mvcc timestamp"
    spot.rows[spot.index] = replace(spot.row, mvcc=None)
    return spot.history.events(), {"mvcc": [text]}


@sabotage
def a_key_in_the_value_that_differs(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.said}: the key in its value is [99]"
    spot.rows[spot.index] = replace(spot.row, key_in_value=(99,))
    return spot.history.events(), {"key_in_value": [text]}


@sabotage
def a_key_in_the_value_that_is_missing(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.said}: has no key in its value"
    spot.rows[spot.index] = replace(spot.row, key_in_value=None)
    return spot.history.events(), {"key_in_value": [text]}


@sabotage
def a_topic_in_the_value_that_differs(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.said}: the topic in its value is w"
    spot.rows[spot.index] = replace(spot.row, topic_in_value="w")
    return spot.history.events(), {"topic": [text]}


@sabotage
def a_topic_in_the_value_that_is_missing(spot: Spot) -> tuple[list[Event], Expected]:
    text = f"{spot.said}: has no topic in its value"
    spot.rows[spot.index] = replace(spot.row, topic_in_value=None)
    return spot.history.events(), {"topic": [text]}
