"""Compares the consumer's tables with the state after each commit of a known list."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from cdc_conformance.validators.events import Key, Row, SeenMark, SeenRow, key_text, row_text, same
from cdc_conformance.validators.oracle import Commit, differences
from cdc_conformance.validators.replay import Moment, Replay
from cdc_core import Endpoint, Timestamp

__all__ = ["PrefixValidator"]

_Tables = dict[str, dict[Key, Row]]


class PrefixValidator:
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
        self.looks = 0
        self._commits = commits
        self._whole = whole
        self._replay = Replay(frozenset(endpoints))
        self._wanted = {Moment.RESOLVED, Moment.AT} if every_timestamp else {Moment.RESOLVED}
        self._made = 0
        """The number of commits in `_model`."""
        self._model: _Tables = {}
        self._differing: set[tuple[str, Key]] = set()
        """Topic and key of the rows in which `_model` and the replayed tables differ."""
        self._failures: list[str] = []

    def note_row(self, row: SeenRow) -> None:
        self._replay.note_row(row)

    def note_resolved(self, mark: SeenMark) -> None:
        for moment, timestamp in self._replay.note_resolved(mark):
            if moment in self._wanted and not self._failures:
                self._look(moment, timestamp)

    def failures(self) -> list[str]:
        found = self._failures + [f"{place}: not among the endpoints" for place in self._replay.strangers]
        if self._whole and not found:
            found += self._difference(f"the last cut, at {self._replay.cut}, lacks commits", len(self._commits))
        return found

    def _look(self, moment: Moment, timestamp: Timestamp) -> None:
        """Advance to the next commit after which the tables match."""
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


def _apply(model: _Tables, commit: Commit) -> None:
    for topic, key, row in commit:
        if row is None:
            model.get(topic, {}).pop(key, None)
        else:
            model.setdefault(topic, {})[key] = row
