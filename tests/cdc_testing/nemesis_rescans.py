"""Validates that rescans emitted the rows that were asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cdc_conformance.validators import SeenMark, SeenRow
from cdc_testing.nemesis_keys import Held, id_of

from cdc_core import Endpoint, Timestamp

__all__ = ["RescanValidator", "Rescanned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescanned:
    """A rescan that is complete: its rows are later than `began`. With `below`, only those with a smaller `id`."""

    topic: str
    below: int | None
    began: Timestamp


class RescanValidator:
    """Each row that was there when a rescan began arrives again, or a change of it, before the next resolved mark.

    Validates once everything has arrived.
    """

    def __init__(self, rescans: Sequence[Rescanned], endpoints: Collection[Endpoint]) -> None:
        self._rescans = rescans
        self._held = Held(endpoints)
        self._cuts: list[Timestamp] = []
        self._rows: list[SeenRow] = []

    def note_row(self, row: SeenRow) -> None:
        self._rows.append(row)
        self._held.note_row(row)

    def note_resolved(self, mark: SeenMark) -> None:
        self._held.covered(mark)
        self._cuts.append(self._held.cut)

    def failures(self) -> list[str]:
        rows = sorted(self._rows, key=lambda row: (row.updated, row.after is not None))
        return [failure for rescan in self._rescans for failure in self._missing(rescan, rows)]

    def _missing(self, rescan: Rescanned, rows: Sequence[SeenRow]) -> list[str]:
        there: set[int] = set()
        again: set[int] = set()
        end = min((cut for cut in self._cuts if cut > rescan.began), default=None)
        if end is None:
            return [f"topic {rescan.topic}: no resolved mark after the rescan that began at {rescan.began}"]
        for row in rows:
            if row.topic != rescan.topic:
                continue
            if row.updated > rescan.began:
                again |= {id_of(row.key)} if row.updated <= end else set()
            elif row.after is None:
                there.discard(id_of(row.key))
            else:
                there.add(id_of(row.key))
        return [
            f"topic {rescan.topic}: row {id_} did not arrive again between {rescan.began}, when its rescan began, and"
            f" the mark {end}"
            for id_ in sorted(there - again)
            if rescan.below is None or id_ < rescan.below
        ]
