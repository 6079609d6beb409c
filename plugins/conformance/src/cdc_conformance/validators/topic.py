"""Validates topics, also in values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from cdc_conformance.validators.events import SeenMark, SeenRow, place_text
from cdc_conformance.validators.validator import Checked

__all__ = ["TopicValidator"]


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
