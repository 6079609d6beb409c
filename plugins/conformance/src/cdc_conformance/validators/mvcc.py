"""Validates the commit timestamps of rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc_conformance.validators.events import SeenRow
from cdc_conformance.validators.validator import Checked

__all__ = ["MvccValidator"]


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
