"""Validates `after` and `before`."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from cdc_conformance.validators.events import AsOf, Checked, Key, Marks, Row, SeenMark, SeenRow, row_text, same
from cdc_core import Timestamp

__all__ = ["BeforeAfterValidator"]


@dataclass
class BeforeAfterValidator(Checked):
    """`after` is the source's row at `updated`, `before` the row just before. Without *diff*, `before` is absent.

    *as_of* reads the source. Without it, `before` must equal `after` of the previous version that arrived, and the
    first version of a key is not checked. A missing `before` is accepted while no mark covers the row's place, because
    scanned rows have none. With *backfills*, a row that equals the version before may always lack it: a backfill
    repeats rows. A repeat of one timestamp must equal the first arrival.

    Cost: one or two calls of *as_of* for each row. Memory: every distinct version.
    """

    as_of: AsOf | None = None
    diff: bool = field(default=True, kw_only=True)
    backfills: bool = field(default=False, kw_only=True)
    _seen: dict[tuple[str, Key], dict[Timestamp, SeenRow]] = field(default_factory=dict)
    _times: dict[tuple[str, Key], list[Timestamp]] = field(default_factory=dict)
    _marks: Marks = field(default_factory=Marks)

    def note_row(self, row: SeenRow) -> None:
        first = self._seen.get((row.topic, row.key), {}).get(row.updated)
        if first is not None:
            self._failures += self._repeat(row, first)
            return
        found = self._looked_up(row) if self.as_of is None else self._asked(row, self.as_of)
        self._failures += found
        self._seen.setdefault((row.topic, row.key), {})[row.updated] = row
        insort(self._times.setdefault((row.topic, row.key), []), row.updated)

    def note_resolved(self, mark: SeenMark) -> None:
        self._marks.note(mark)

    def _asked(self, row: SeenRow, as_of: AsOf) -> list[str]:
        found = []
        expected = as_of(row.topic, row.key, row.updated)
        if not same(row.after, expected):
            found.append(f"{_said(row)}: after is {row_text(row.after)}, expected {row_text(expected)}")
        if not self.diff or not self._may_be_scanned(row):
            previous = as_of(row.topic, row.key, row.updated.prev()) if self.diff else None
            if not self._may_be_backfilled(row, previous):
                found += self._before(row, previous)
        return found

    def _looked_up(self, row: SeenRow) -> list[str]:
        times = self._times.get((row.topic, row.key), [])
        place = bisect_left(times, row.updated)
        if not self.diff:
            return self._before(row, None)
        if place == 0:
            return []
        previous = self._seen[row.topic, row.key][times[place - 1]].after
        if self._may_be_backfilled(row, previous) or (self._may_be_scanned(row) and same(row.after, previous)):
            return []
        return self._before(row, previous)

    def _before(self, row: SeenRow, expected: Row | None) -> list[str]:
        if same(row.before, expected):
            return []
        return [f"{_said(row)}: before is {row_text(row.before)}, expected {row_text(expected)}"]

    def _repeat(self, row: SeenRow, first: SeenRow) -> list[str]:
        found = []
        if not same(row.after, first.after):
            found.append(
                f"{_said(row)}: arrived again with after {row_text(row.after)}, expected {row_text(first.after)}"
            )
        scanned = row.after is not None and (row.before is None or first.before is None)
        if not same(row.before, first.before) and not (scanned and not self._marks.over(row)):
            found.append(
                f"{_said(row)}: arrived again with before {row_text(row.before)}, expected {row_text(first.before)}"
            )
        return found

    def _may_be_backfilled(self, row: SeenRow, previous: Row | None) -> bool:
        return self.backfills and row.before is None and row.after is not None and same(row.after, previous)

    def _may_be_scanned(self, row: SeenRow) -> bool:
        return row.before is None and row.after is not None and not self._marks.over(row)


def _said(row: SeenRow) -> str:
    return f"{row.place} updated {row.updated}"
