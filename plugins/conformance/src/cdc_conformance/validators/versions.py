"""Validates versions that a column counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc_conformance.validators.events import Key, SeenRow, key_text
from cdc_conformance.validators.validator import Checked

__all__ = ["VersionValidator"]


@dataclass
class VersionValidator(Checked):
    """Every committed version of a row arrived: no number is missing between two versions.

    Each transaction that writes the row increments *column*. The first version that arrives may have any number. If
    the commits are known, use `CompletenessValidator`, which finds more.

    Memory: a number for every distinct version.
    """

    topic: str
    column: str
    _versions: dict[Key, set[int]] = field(default_factory=dict)

    def note_row(self, row: SeenRow) -> None:
        if row.topic == self.topic and row.after is not None:
            self._versions.setdefault(row.key, set()).add(row.after[self.column])

    @property
    def newest(self) -> int:
        """The greatest version of any key that arrived; 0 if there is none."""
        return max((version for versions in self._versions.values() for version in versions), default=0)

    def failures(self) -> list[str]:
        found = []
        for key, versions in self._versions.items():
            lost = sorted(set(range(min(versions), max(versions) + 1)) - versions)
            if lost:
                found.append(f"topic {self.topic} key {key_text(key)}: versions {lost} never arrived")
        return found
