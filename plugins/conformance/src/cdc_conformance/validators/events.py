"""What validators are fed with: rows and resolved marks, as a consumer understands them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdc_core import Endpoint, Timestamp

__all__ = ["Key", "Row", "SeenMark", "SeenRow", "key_of", "key_text", "place_text", "row_text", "same"]

Key = tuple[Any, ...]
"""The primary key's values, in key order. Made by `key_of`, equal keys are equal, also where they hold a NaN."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRow:
    """One arrival of a row version. `after` is None for a delete; `partition` where the topic has partitions.

    What the envelope leaves out is None.
    """

    topic: str
    key: Key
    after: Row | None
    updated: Timestamp
    partition: int | None = None
    before: Row | None = None
    mvcc: Timestamp | None = None
    key_in_value: Key | None = None
    topic_in_value: str | None = None

    @property
    def place(self) -> str:
        """Where it arrived and what its key is, for messages to people."""
        return f"{place_text(self.topic, self.partition)} key {key_text(self.key)}"

    @property
    def name(self) -> str:
        """The topic and the key, for messages to people about a key wherever its rows arrive."""
        return f"topic {self.topic} key {key_text(self.key)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMark:
    """One arrival of a resolved mark. Without a topic it is for all of them, without a partition for the topic."""

    resolved: Timestamp
    topic: str | None = None
    partition: int | None = None

    @property
    def endpoint(self) -> Endpoint:
        return self.topic, self.partition


def place_text(topic: str | None, partition: int | None) -> str:
    """Return an endpoint's name for messages to people."""
    if topic is None:
        return "all topics"
    return f"topic {topic}" if partition is None else f"topic {topic} partition {partition}"


def key_of(values: Key) -> Key:
    """Return a key of *values* that is equal to, and has the hash of, every other one of these values."""
    return tuple(math.nan if value != value else value for value in values)


def key_text(key: Key) -> str:
    """Return a key for messages to people: JSON as far as its values have one."""
    return json.dumps(list(key), default=str, ensure_ascii=False)


def row_text(row: Row | None) -> str:
    """Return a row for messages to people."""
    return "no row" if row is None else json.dumps(row, default=str, ensure_ascii=False)


def same(one: Row | None, other: Row | None) -> bool:
    """Return whether two rows are the same: a NaN is the same as another, and a column that one lacks is null there."""
    if one == other:
        return True
    if one is None or other is None:
        return False
    return all(_same_value(one.get(name), other.get(name)) for name in {**one, **other})


def _same_value(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))
