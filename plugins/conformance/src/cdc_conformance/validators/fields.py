"""Validators of single fields of rows: the commit timestamp, the topic, and the key in the value."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from cdc_conformance.validators.events import Checked, SeenMark, SeenRow, key_of, key_text, place_text


@dataclass
class MvccValidator(Checked):
    """Every row has `mvcc`, not after `updated` and at most *within_s* before it.

    With *within_s* None, a row may have any age, as scanned rows do. Memory: only failures.
    """

    within_s: float | None = field(default=3600.0, kw_only=True)

    def note_row(self, row: SeenRow) -> None:
        said = f"{row.place} updated {row.updated}"
        if row.mvcc is None:
            self._failures.append(f"{said}: has no mvcc timestamp")
        elif row.mvcc > row.updated:
            self._failures.append(f"{said}: mvcc timestamp {row.mvcc} is after it")
        elif self.within_s is not None and row.updated.wall - row.mvcc.wall > self.within_s * 1e9:
            self._failures.append(f"{said}: mvcc timestamp {row.mvcc} is more than {self.within_s:g} s before it")


@dataclass
class TopicValidator(Checked):
    """Rows and marks arrive in *topics* only. With *in_value*, each value holds its topic (option topic_in_value).

    Without a topic in the value, a row in the wrong topic is not found here, but by `CompletenessValidator` and
    `FingerprintValidator`. Memory: only failures.
    """

    topics: Collection[str]
    in_value: bool = field(default=False, kw_only=True)

    def note_row(self, row: SeenRow) -> None:
        said = f"{row.place} updated {row.updated}"
        if row.topic not in self.topics:
            self._failures.append(f"{said}: the topics are {', '.join(sorted(self.topics))}")
        if self.in_value and row.topic_in_value is None:
            self._failures.append(f"{said}: has no topic in its value")
        elif row.topic_in_value not in (None, row.topic):
            self._failures.append(f"{said}: the topic in its value is {row.topic_in_value}")

    def note_resolved(self, mark: SeenMark) -> None:
        if mark.topic is not None and mark.topic not in self.topics:
            place = place_text(*mark.endpoint)
            self._failures.append(f"{place} resolved {mark.resolved}: the topics are {', '.join(sorted(self.topics))}")


@dataclass
class KeyInValueValidator(Checked):
    """The key that the option key_in_value puts into the value equals the message's key.

    *columns* names the key columns of topics, in key order. For these, `after` must match the key too. Memory: only
    failures.
    """

    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def note_row(self, row: SeenRow) -> None:
        said = f"{row.place} updated {row.updated}"
        if row.key_in_value is None:
            self._failures.append(f"{said}: has no key in its value")
        elif row.key_in_value != row.key:
            self._failures.append(f"{said}: the key in its value is {key_text(row.key_in_value)}")
        names = self.columns.get(row.topic)
        if names is not None and row.after is not None:
            inside = key_of(tuple(row.after.get(name) for name in names))
            if inside != row.key:
                self._failures.append(f"{said}: its columns {', '.join(names)} are {key_text(inside)}")
