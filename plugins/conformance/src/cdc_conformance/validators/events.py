"""The events that validators get, the interface of validators, and the callbacks by which they read the source."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, Protocol, TypeVar

from cdc_core import Endpoint, Timestamp

Key = tuple[Any, ...]
"""The values of the primary key, in key order. `key_of` makes keys with NaN comparable."""
Row = Mapping[str, Any]
AsOf = Callable[[str, Key, Timestamp], Row | None]
"""Returns the row with a key in a topic's table as of a time; None if there was none."""
State = Mapping[str, Mapping[Key, Row]]
"""Live rows by topic and key."""
StateAt = Callable[[Timestamp], State]
"""Returns all rows of all watched tables as of a time."""
Change = tuple[str, Key, Row | None]
"""Topic, key, and the new row; None for a delete."""
Commit = Sequence[Change]
"""The changes of one transaction, each row once."""
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRow:
    """One arrival of a row version. `after` is None for a delete; `partition` is None without partitions.

    Fields that the envelope omits are None.
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
        """Topic, partition and key, for messages."""
        return f"{place_text(self.topic, self.partition)} key {key_text(self.key)}"

    @property
    def name(self) -> str:
        """Topic and key, for messages about all arrivals of a key."""
        return f"topic {self.topic} key {key_text(self.key)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMark:
    """One arrival of a resolved mark. Without a topic it covers all topics, without a partition the whole topic."""

    resolved: Timestamp
    topic: str | None = None
    partition: int | None = None

    @property
    def endpoint(self) -> Endpoint:
        return self.topic, self.partition


def place_text(topic: str | None, partition: int | None) -> str:
    """Return the name of an endpoint, for messages."""
    if topic is None:
        return "all topics"
    return f"topic {topic}" if partition is None else f"topic {topic} partition {partition}"


def key_of(values: Key) -> Key:
    """Return a key of *values*. Keys of the same values are equal and have the same hash, also with NaN."""
    return tuple(math.nan if value != value else value for value in values)


def key_text(key: Key) -> str:
    """Return a key as text, for messages: JSON as far as possible."""
    return json.dumps(list(key), default=str, ensure_ascii=False)


def row_text(row: Row | None) -> str:
    """Return a row as text, for messages."""
    return "no row" if row is None else json.dumps(row, default=str, ensure_ascii=False)


def same(one: Row | None, other: Row | None) -> bool:
    """Return whether two rows are the same. NaN equals NaN, and a missing column counts as null."""
    if one == other:
        return True
    if one is None or other is None:
        return False
    return all(_same_value(one.get(name), other.get(name)) for name in {**one, **other})


def _same_value(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


@dataclass(slots=True)
class Marks:
    """The greatest mark of each endpoint so far."""

    at: dict[Endpoint, Timestamp] = field(default_factory=dict)

    def note(self, mark: SeenMark) -> None:
        self.at[mark.endpoint] = max(mark.resolved, self.at.get(mark.endpoint, Timestamp()))

    def over(self, row: SeenRow) -> Timestamp:
        """Return the greatest mark that covers the place of *row*; zero if there is none."""
        return max(self.at.get(endpoint, Timestamp()) for endpoint in speaks_for(row.topic, row.partition))

    def least(self, endpoints: Collection[Endpoint]) -> Timestamp:
        """Return the timestamp up to which all *endpoints* are resolved; zero while one of them has no mark."""
        return min((self.at.get(endpoint, Timestamp()) for endpoint in endpoints), default=Timestamp())


def speaks_for(topic: str, partition: int | None) -> tuple[Endpoint, ...]:
    """Return every endpoint whose marks cover rows that arrive in *partition* of *topic*."""
    return ((topic, partition), (topic, None), (None, None))


class Validator(Protocol):
    """Takes every event in the order in which a consumer gets it. `failures` then returns what was wrong, in words.

    Repeats are fed too. A failure names topic, partition, key and timestamps, if known, and the expected value. No
    failures means success.
    """

    def note_row(self, row: SeenRow) -> None: ...

    def note_resolved(self, mark: SeenMark) -> None: ...

    def failures(self) -> list[str]: ...


@dataclass
class Checked:
    """The part of a validator that most have. It ignores marks."""

    _failures: list[str] = field(default_factory=list, init=False)

    def note_resolved(self, mark: SeenMark) -> None:
        """Ignore *mark*."""

    def failures(self) -> list[str]:
        return self._failures


class All:
    """Feeds several validators. Its failures are those of all of them, in their order."""

    def __init__(self, validators: Iterable[Validator]) -> None:
        self.validators = tuple(validators)

    def note_row(self, row: SeenRow) -> None:
        for validator in self.validators:
            validator.note_row(row)

    def note_resolved(self, mark: SeenMark) -> None:
        for validator in self.validators:
            validator.note_resolved(mark)

    def failures(self) -> list[str]:
        return [failure for validator in self.validators for failure in validator.failures()]


def retried(
    oracle: Callable[_P, _T], *, on: tuple[type[Exception], ...], limit_s: float = 60.0, pause_s: float = 0.1
) -> Callable[_P, _T]:
    """Return *oracle* with retries: it is called again after an error in *on*, for *limit_s* after the first one.

    For an oracle that reads a database which tests kill. Other errors, and the last one, are raised, because an error
    is not an answer. Do not use a validator after its oracle has raised.
    """

    def ask(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        deadline: float | None = None
        while True:
            try:
                return oracle(*args, **kwargs)
            except on:
                deadline = deadline or time.monotonic() + limit_s
                if time.monotonic() >= deadline:
                    raise
                time.sleep(pause_s)

    return ask


def differences(found: State, expected: State) -> Iterator[tuple[str, Key, Row | None, Row | None]]:
    """Yield topic, key, found and expected row wherever two states differ."""
    for topic in sorted({**found, **expected}):
        there, wanted = found.get(topic, {}), expected.get(topic, {})
        if there == wanted:
            continue
        for key in sorted({**there, **wanted}, key=key_text):
            if not same(there.get(key), wanted.get(key)):
                yield topic, key, there.get(key), wanted.get(key)
