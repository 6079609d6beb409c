"""Compares the consumer's tables with the source's at every timestamp."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cdc_conformance.validators.events import Key, Row, SeenMark, SeenRow, key_text, row_text
from cdc_conformance.validators.oracle import State, StateAt, differences
from cdc_conformance.validators.replay import Moment, Replay
from cdc_core import Endpoint, Timestamp

__all__ = ["FingerprintValidator"]


class FingerprintValidator:
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
        self,
        state_at: StateAt,
        *,
        endpoints: Collection[Endpoint] = ((None, None),),
        start: State | None = None,
    ) -> None:
        self.looks = 0
        self._state_at = state_at
        known = {topic: dict(rows) for topic, rows in (start or {}).items()}
        self._replay = Replay(frozenset(endpoints), known=start is not None, state=known)
        self._reported: Mapping[tuple[str, Key], tuple[Row | None, Row | None]] = {}
        self._failures: list[str] = []

    def note_row(self, row: SeenRow) -> None:
        self._replay.note_row(row)

    def note_resolved(self, mark: SeenMark) -> None:
        for moment, timestamp in self._replay.note_resolved(mark):
            self._look(moment, timestamp)

    def failures(self) -> list[str]:
        return self._failures + [f"{place}: not among the endpoints" for place in self._replay.strangers]

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
