"""Rebuild the tables from what arrives, and compare them in consistent states with an invariant or with the source."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from cdc_conformance.validators.events import (
    Commit,
    Key,
    Marks,
    Row,
    SeenMark,
    SeenRow,
    State,
    StateAt,
    differences,
    key_text,
    place_text,
    row_text,
    same,
    speaks_for,
)
from cdc_core import Endpoint, Timestamp

_Tables = dict[str, dict[Key, Row]]


class Moment(Enum):
    """When a state may be examined."""

    BEFORE = "before"
    """Just before the rows of a timestamp are applied."""
    AT = "at"
    """All rows of a timestamp are applied."""
    RESOLVED = "at resolved"
    """All rows up to a cut are applied."""


@dataclass
class Replay:
    """Holds rows back until the marks of all *endpoints* cover them, and then applies them in timestamp order.

    `note_resolved` yields the moments at which `state` may be examined; it must be exhausted. Up to the first cut the
    only moment is the cut itself, because rows of an initial scan have different ages. With *known*, `state` is the
    source's state at the start of a changefeed without initial scan, and there are moments from the start on. A late
    row, below a cut, is applied with the next cut, without a moment of its own. Events at other endpoints are ignored,
    and `strangers` names those endpoints. The first of several repeats counts.

    Memory: the tables, a timestamp for every key, and the rows above the last cut.
    """

    endpoints: Collection[Endpoint]
    known: bool = False
    state: dict[str, dict[Key, Row]] = field(default_factory=dict)
    cut: Timestamp = Timestamp()
    changed: set[tuple[str, Key]] = field(default_factory=set)
    """Topic and key of every row that was applied. The caller may clear it."""
    strangers: list[str] = field(default_factory=list)
    _marks: Marks = field(default_factory=Marks)
    _applied: dict[tuple[str, Key], Timestamp] = field(default_factory=dict)
    _waiting: list[tuple[Timestamp, int, SeenRow]] = field(default_factory=list)
    _arrivals: int = 0

    @property
    def waiting(self) -> int:
        """The number of rows above the last cut, without repeats of rows that it covers."""
        return sum(1 for updated, _, _ in self._waiting if updated > self.cut)

    def note_row(self, row: SeenRow) -> None:
        if any(endpoint in self.endpoints for endpoint in speaks_for(row.topic, row.partition)):
            self._arrivals += 1
            heapq.heappush(self._waiting, (row.updated, self._arrivals, row))
        else:
            self.strangers.append(place_text(row.topic, row.partition))

    def note_resolved(self, mark: SeenMark) -> Iterator[tuple[Moment, Timestamp]]:
        if mark.endpoint not in self.endpoints:
            self.strangers.append(place_text(*mark.endpoint))
            return
        self._marks.note(mark)
        until = self._marks.least(self.endpoints)
        if until <= self.cut:
            return
        last, self.cut = self.cut, until
        looking = self.known or bool(last)
        while self._waiting and self._waiting[0][0] <= until:
            now = self._waiting[0][0]
            if looking and now > last:
                yield Moment.BEFORE, now
            while self._waiting and self._waiting[0][0] == now:
                self._apply(heapq.heappop(self._waiting)[2])
            if looking and now > last:
                yield Moment.AT, now
        yield Moment.RESOLVED, until

    def _apply(self, row: SeenRow) -> None:
        if row.updated <= self._applied.get((row.topic, row.key), Timestamp()):
            return
        self._applied[row.topic, row.key] = row.updated
        self.changed.add((row.topic, row.key))
        rows = self.state.setdefault(row.topic, {})
        if row.after is None:
            rows.pop(row.key, None)
        else:
            rows[row.key] = row.after


class _AtCuts(ABC):
    """Looks at the tables at `wanted` moments. Events at other endpoints are failures."""

    def __init__(self, replay: Replay, wanted: Collection[Moment]) -> None:
        self._replay = replay
        self._wanted = wanted
        self._failures: list[str] = []

    def note_row(self, row: SeenRow) -> None:
        self._replay.note_row(row)

    def note_resolved(self, mark: SeenMark) -> None:
        for moment, timestamp in self._replay.note_resolved(mark):
            if moment in self._wanted:
                self._look(moment, timestamp)

    def failures(self) -> list[str]:
        return self._failures + [f"{place}: not among the endpoints" for place in self._replay.strangers]

    @abstractmethod
    def _look(self, moment: Moment, timestamp: Timestamp) -> None:
        """Compare the tables of `moment`."""


class CutValidator(_AtCuts):
    """*invariant* holds in the state at every resolved mark.

    *invariant* takes the state and returns what is wrong with it, or None. It should hold after every transaction and
    fail within one. Rows are applied when the marks of all *endpoints* cover them; *endpoints* must be complete. With
    *every_timestamp*, the state after each `updated` is checked too, but not below the first cut, where rows of an
    initial scan have different ages. `cuts` counts the checks.

    Memory: see `Replay`.
    """

    def __init__(
        self,
        invariant: Callable[[State], str | None],
        *,
        endpoints: Collection[Endpoint] = ((None, None),),
        every_timestamp: bool = False,
    ) -> None:
        super().__init__(Replay(frozenset(endpoints)), _moments(every_timestamp))
        self.cuts = 0
        self._invariant = invariant

    @property
    def state(self) -> dict[str, dict[Key, Row]]:
        """The live rows at the last cut."""
        return self._replay.state

    @property
    def waiting(self) -> int:
        """The number of rows above the last cut, without repeats of rows that it covers."""
        return self._replay.waiting

    def _look(self, moment: Moment, timestamp: Timestamp) -> None:
        self.cuts += 1
        wrong = self._invariant(self.state)
        if wrong is not None:
            self._failures.append(f"{moment.value} {timestamp}: {wrong}")


class FingerprintValidator(_AtCuts):
    """The rows that arrived make the source's tables: at every `updated`, just before it, and at every resolved mark.

    *state_at* returns the rows of the source as of a time, by topic and key. The comparison just before a timestamp
    finds an update that never arrived although a later one of the row did. Rows are applied when the marks of all
    *endpoints* cover them. *start* is the source's state at the start of a changefeed without initial scan; if it is
    not given, timestamps below the first cut are not compared. A row that differs is reported once, until it is right
    or differs in another way.

    Use `PrefixValidator` for a source that cannot be read as of a time, and `retried` for an oracle that may fail.

    Cost: one *state_at* and one comparison of all rows for each moment, up to three for each timestamp. Memory: see
    `Replay`.
    """

    def __init__(
        self, state_at: StateAt, *, endpoints: Collection[Endpoint] = ((None, None),), start: State | None = None
    ) -> None:
        known = {topic: dict(rows) for topic, rows in (start or {}).items()}
        super().__init__(Replay(frozenset(endpoints), known=start is not None, state=known), frozenset(Moment))
        self.looks = 0
        self._state_at = state_at
        self._reported: Mapping[tuple[str, Key], tuple[Row | None, Row | None]] = {}

    def _look(self, moment: Moment, timestamp: Timestamp) -> None:
        self.looks += 1
        asked = timestamp.prev() if moment is Moment.BEFORE else timestamp
        found = {
            (topic, key): (row, expected)
            for topic, key, row, expected in differences(self._replay.state, self._state_at(asked))
        }
        for (topic, key), rows in found.items():
            if self._reported.get((topic, key)) != rows:
                row, expected = map(row_text, rows)
                self._failures.append(
                    f"{moment.value} {timestamp}: topic {topic} key {key_text(key)}: is {row}, expected {expected}"
                )
        self._reported = found


class PrefixValidator(_AtCuts):
    """At every resolved mark, and after every `updated`, the tables are the state after some number of commits.

    It replaces `FingerprintValidator` for a source that cannot be read as of a time. *commits* holds all commits in
    order, from empty tables on. It may grow while events arrive, but must contain every commit whose rows arrived. The
    number of commits may be anything at the first cut and never decreases. Without *every_timestamp* only marks are
    validated, for a source that gives one large transaction several timestamps. With *whole*, the last cut must be
    after all commits. Commits that cancel out between two comparisons are not missed; see `CompletenessValidator`.

    Nothing is validated after the first failure. Memory: see `Replay`, and the tables a second time.
    """

    def __init__(
        self,
        commits: Sequence[Commit],
        *,
        endpoints: Collection[Endpoint] = ((None, None),),
        every_timestamp: bool = True,
        whole: bool = False,
    ) -> None:
        super().__init__(Replay(frozenset(endpoints)), _moments(every_timestamp))
        self.looks = 0
        self._commits = commits
        self._whole = whole
        self._made = 0
        """The number of commits in `_model`."""
        self._model: _Tables = {}
        self._differing: set[tuple[str, Key]] = set()
        """Topic and key of the rows in which `_model` and the replayed tables differ."""

    def failures(self) -> list[str]:
        found = super().failures()
        if self._whole and not found:
            found += self._difference(f"the last cut, at {self._replay.cut}, lacks commits", len(self._commits))
        return found

    def _look(self, moment: Moment, timestamp: Timestamp) -> None:
        """Advance to the next commit after which the tables match."""
        if self._failures:
            return
        self.looks += 1
        self._compare(self._replay.changed)
        self._replay.changed.clear()
        least, nearest, following = len(self._differing), self._made, self._made + 1
        while self._differing and self._made < len(self._commits):
            commit = self._commits[self._made]
            self._made += 1
            _apply(self._model, commit)
            self._compare((topic, key) for topic, key, _ in commit)
            # If the next commit reduces the difference no more than the last one, it is the one that is missing.
            if len(self._differing) < least + (self._made == following):
                least, nearest = len(self._differing), self._made
        if self._differing:
            self._failures += self._difference(f"{moment.value} {timestamp}: the tables match no commit", nearest)

    def _compare(self, ids: Iterable[tuple[str, Key]]) -> None:
        for topic, key in ids:
            if same(self._replay.state.get(topic, {}).get(key), self._model.get(topic, {}).get(key)):
                self._differing.discard((topic, key))
            else:
                self._differing.add((topic, key))

    def _difference(self, what: str, count: int) -> list[str]:
        """Return *what* with the first row that differs from the state after *count* commits, if any."""
        model: _Tables = {}
        for commit in self._commits[:count]:
            _apply(model, commit)
        after = f"after {count} of {len(self._commits)} commits"
        return [
            f"{what}; {after} topic {topic} key {key_text(key)} was {row_text(expected)}, but is {row_text(row)}"
            for topic, key, row, expected in differences(self._replay.state, model)
        ][:1]


def _moments(every_timestamp: bool) -> set[Moment]:
    return {Moment.RESOLVED, Moment.AT} if every_timestamp else {Moment.RESOLVED}


def _apply(model: _Tables, commit: Commit) -> None:
    for topic, key, row in commit:
        if row is None:
            model.get(topic, {}).pop(key, None)
        else:
            model.setdefault(topic, {})[key] = row
