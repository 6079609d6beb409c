"""Traced changes in a slice, followed until the sink has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from cdc_core.delivery.blocked_keys import BlockedKeys
from cdc_core.delivery.harmless import harmless
from cdc_core.delivery.row_json import key_json
from cdc_core.delivery.tracing import TracedChange
from cdc_core.rows import RowBatch
from cdc_core.sink_calls import TracedRow
from cdc_core.store.values import DeadLetter
from cdc_core.timestamp import Timestamp

__all__ = ["FollowedChanges"]

_STAGES = ("encoded", "emitted", "acknowledged")


class FollowedChanges:
    """Follows traced changes of a slice through its sink: a `SliceTrace`. After an error it follows none."""

    def __init__(self) -> None:
        self._changes: list[tuple[TracedChange, TracedRow]] = []
        self._by_row: dict[tuple[str, str, str], TracedRow] = {}
        self._keys = BlockedKeys()

    def add(self, changes: Iterable[TracedChange]) -> None:
        """Follow *changes*, whose rows come later."""
        for change in changes:
            row = TracedRow()
            self._changes.append((change, row))
            self._by_row[change["table"], change["key"], change["updated"]] = row
            self._keys.add(change["table"], change["key"])

    def rows_in(self, rows: RowBatch) -> Sequence[tuple[int, TracedRow]]:
        table, updated, keys = rows.schema.name.full, rows.column("updated"), rows.column("key")
        found = []
        with harmless(self._drop):
            for index in self._keys.find(rows):
                at = str(Timestamp(**updated[index].as_py()))
                row = self._by_row.get((table, key_json(rows.schema, keys[index]), at))
                if row is not None:
                    found.append((index, row))
        return found

    def emitted(self, rows: RowBatch) -> None:
        """Note that the sink has taken *rows*; they may wait in it."""
        for _, row in self.rows_in(rows):
            row.reached("emitted")

    def so_far(self) -> list[TracedChange]:
        """Return what is known of each change."""
        changes: list[TracedChange] = []
        with harmless(self._drop):
            for change, row in self._changes:
                reached = {stage: row.moments[stage] for stage in _STAGES if stage in row.moments}
                place = json.loads(json.dumps(dict(row.place)))  # a sink may have said what is no JSON
                changes.append({**change, **reached, **({"place": place} if place else {})})
        return changes

    def flushed(self, dead_letters: Sequence[DeadLetter]) -> tuple[TracedChange, ...]:
        """Return what became of each change, now that all rows of the slice are durable or among *dead_letters*."""
        refused = {(letter.table, letter.key, str(letter.updated)): letter.stage for letter in dead_letters}
        for identity, row in self._by_row.items():
            if identity not in refused and "emitted" in row.moments and "acknowledged" not in row.moments:
                row.reached("acknowledged")
        changes = self.so_far()
        for change in changes:
            stage = refused.get((change["table"], change["key"], change["updated"]))
            if stage is not None:
                change["dead_letter"] = stage
            elif "emitted" not in change:
                change["left_out"] = True
        return tuple(changes)

    def _drop(self) -> None:
        self._changes.clear()
        self._by_row.clear()
        self._keys = BlockedKeys()
