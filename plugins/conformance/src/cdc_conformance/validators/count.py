"""Counts what arrived."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cdc_conformance.validators.events import SeenMark, SeenRow, speaks_for
from cdc_core import Timestamp

__all__ = ["CountValidator"]


@dataclass
class CountValidator:
    """At least *least_rows* rows and *least_marks* marks arrived. A test that saw nothing has proved nothing.

    `rows` and `repeats` count arrivals, `marks` counts resolved marks, `resolved_rows` the rows that a later mark
    covers, and `marks_with_rows` the marks that cover at least one row for the first time.

    Memory: a timestamp for every distinct version, and the rows that no mark covers yet.
    """

    least_rows: int = field(default=0, kw_only=True)
    least_marks: int = field(default=0, kw_only=True)
    rows: int = 0
    repeats: int = 0
    marks: int = 0
    resolved_rows: int = 0
    marks_with_rows: int = 0
    _seen: set[tuple[object, ...]] = field(default_factory=set)
    _open: Counter[tuple[str, int | None, Timestamp]] = field(default_factory=Counter)

    def note_row(self, row: SeenRow) -> None:
        self.rows += 1
        version = (row.topic, row.key, row.updated)
        self.repeats += version in self._seen
        self._seen.add(version)
        self._open[row.topic, row.partition, row.updated] += 1

    def note_resolved(self, mark: SeenMark) -> None:
        self.marks += 1
        covered = [
            place for place in self._open if place[2] <= mark.resolved and mark.endpoint in speaks_for(*place[:2])
        ]
        self.marks_with_rows += bool(covered)
        for place in covered:
            self.resolved_rows += self._open.pop(place)

    def failures(self) -> list[str]:
        wanted = (("rows", self.rows, self.least_rows), ("resolved marks", self.marks, self.least_marks))
        return [f"{found} {what} arrived, expected at least {least}" for what, found, least in wanted if found < least]
