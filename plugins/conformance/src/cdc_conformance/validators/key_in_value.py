"""Validates the key in the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cdc_conformance.validators.events import SeenRow, key_of, key_text
from cdc_conformance.validators.validator import Checked

__all__ = ["KeyInValueValidator"]


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
