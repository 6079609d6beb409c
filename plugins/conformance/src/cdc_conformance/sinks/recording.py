"""The engine's part for a sink that keeps a history: what was saved, and what each mark covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.seen import Row
from cdc_core import Flushed, RowBatch, Timestamp
from cdc_core.readback.reader import ChangeReader
from cdc_core.sink import Covered

__all__ = ["DirectoryStorage", "Recording"]


class Recording:
    """Writes slices and marks as the engine does, and reads what is recorded."""

    def __init__(self, rig: SinkRig) -> None:
        self._rig = rig
        self._saved: list[Mapping[str, Any]] = []
        self._previous: Timestamp | None = Timestamp()
        self._latest = Timestamp()

    def write(self, *batches: RowBatch, **slice_: Any) -> Flushed:
        """Write one slice as `SinkRig.write` does, and save that it is delivered."""
        flushed = self._rig.write(*batches, **slice_)
        self.save(flushed, *batches)
        return flushed

    def save(self, flushed: Flushed, *batches: RowBatch) -> None:
        """Have the next mark cover what *flushed* tells of."""
        self._saved += flushed.delivered
        self._latest = max(self._latest, *(batch.latest() for batch in batches))

    def mark(self, timestamp: Timestamp, *, times: int = 1, gap: bool = False) -> None:
        """Record and emit a mark over all that was saved; *gap*: something was delivered that is in no record."""
        covered = Covered(
            mark=timestamp,
            previous=None if gap else self._previous,
            latest=self._latest,
            delivered=tuple(self._saved),
        )
        self._rig.expect_mark(timestamp)
        for epoch in range(1, times + 1):
            with self._rig.opened(epoch=epoch) as coordinator:
                coordinator.record(covered)
                coordinator.emit_resolved(timestamp)
        self._previous, self._saved = timestamp, []

    def reader(self) -> ChangeReader:
        """Return what reads the history, to be closed."""
        return ChangeReader(self._rig.uri_of_sink(), host=self._rig.host)

    def read(self, *, upto: Timestamp | None = None, after: Timestamp = Timestamp()) -> list[RowBatch]:
        """Return the rows that are recorded."""
        with self.reader() as reader:
            return list(reader.read(upto=upto, after=after))

    def differences(self, found: Sequence[RowBatch], given: Sequence[RowBatch]) -> str:
        """Say what is wrong when *found* are not the rows of *given*, in whatever order; empty when they are."""
        wanted, there = self._values(given), self._values(found)
        counts = Counter(self._rig.rows(*found))
        for row, values in wanted.items():
            if row not in there:
                return f"{row} is not there"
            if there[row] != values:
                return f"{row} has the values {there[row]}, not {values}"
        strange = next((row for row in there if row not in wanted), None)
        if strange is not None:
            return f"{strange} is there and does not belong there"
        return next((f"{row} is there {count} times" for row, count in counts.items() if count > 1), "")

    def _values(self, batches: Sequence[RowBatch]) -> dict[Row, Any]:
        rows = self._rig.rows(*batches)
        values = [after for batch in batches for after in batch.column("after").to_pylist()]
        return dict(zip(rows, values, strict=True))


class DirectoryStorage:
    """The files of a sink that writes to a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def paths(self) -> frozenset[str]:
        """Return every file, by its path below the root."""
        return frozenset(str(path.relative_to(self._root)) for path in self._root.rglob("*") if path.is_file())

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        (self._root / path).write_bytes(content)

    def remove(self, path: str) -> None:
        (self._root / path).unlink()
