"""The engine's part for a sink with a history: what was saved, and what each mark covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.seen import Row
from cdc_core import ChangeReader, Covered, Flushed, RowBatch, Timestamp

__all__ = ["DirectoryStorage", "Recording"]


class Recording:
    """Writes slices and marks as the engine does, and reads what is recorded."""

    def __init__(self, rig: SinkRig) -> None:
        self._rig = rig
        self._saved: list[Mapping[str, Any]] = []
        self._previous: Timestamp | None = Timestamp()
        self._latest = Timestamp()

    def write(self, *batches: RowBatch, **place: Any) -> Flushed:
        """Write one slice as `SinkRig.write` does, and save its entries."""
        flushed = self._rig.write(*batches, **place)
        self.save(flushed, *batches)
        return flushed

    def save(self, flushed: Flushed, *batches: RowBatch) -> None:
        """Let the next mark cover the entries of *flushed*."""
        self._saved += flushed.delivered
        self._latest = max(self._latest, *(batch.latest() for batch in batches))

    def mark(self, timestamp: Timestamp, *, times: int = 1, gap: bool = False) -> None:
        """Record and emit a mark over everything that was saved. *gap*: rows were delivered without a record."""
        covered = Covered(
            mark=timestamp,
            previous=None if gap else self._previous,
            latest=self._latest,
            delivered=tuple(self._saved),
        )
        self._rig.expect_mark(timestamp)
        for epoch in range(1, times + 1):
            with self._rig.closing(self._rig.open_resolved_sink(epoch=epoch)) as resolved_sink:
                resolved_sink.record(covered)
                resolved_sink.emit_resolved(timestamp)
        self._previous, self._saved = timestamp, []

    def reader(self) -> ChangeReader:
        """Return a reader of the history, which the caller closes."""
        return ChangeReader(self._rig.full_uri(), host=self._rig.host)

    def read(self, *, upto: Timestamp | None = None, after: Timestamp = Timestamp()) -> list[RowBatch]:
        """Return the rows that are recorded."""
        with self.reader() as reader:
            return list(reader.read(upto=upto, after=after))

    def differences(self, found: Sequence[RowBatch], written: Sequence[RowBatch]) -> str:
        """Describe the first difference between the rows of *found* and of *written*, in any order; empty if none."""
        wanted, there = self._values(written), self._values(found)
        counts = Counter(self._rig.rows(*found))
        for row, values in wanted.items():
            if row not in there:
                return f"{row} is missing"
            if there[row] != values:
                return f"{row} has the values {there[row]}, not {values}"
        unknown = next((row for row in there if row not in wanted), None)
        if unknown is not None:
            return f"{unknown} is there and must not be"
        return next((f"{row} is there {count} times" for row, count in counts.items() if count > 1), "")

    def assert_read(
        self,
        *written: RowBatch,
        after: str,
        upto: Timestamp | None = None,
        found: Sequence[RowBatch] | None = None,
    ) -> None:
        """Require that *found*, or what is read up to a mark, is exactly *written*. *after*: what has happened.

        Raises: AssertionError that names the first difference.
        """
        __tracebackhide__ = True
        difference = self.differences(self.read(upto=upto) if found is None else found, written)
        assert not difference, f"{after}, but {difference}"

    def _values(self, batches: Sequence[RowBatch]) -> dict[Row, Any]:
        rows = self._rig.rows(*batches)
        values = [after for batch in batches for after in batch.column("after").to_pylist()]
        return dict(zip(rows, values, strict=True))


class DirectoryStorage:
    """The files of a sink that writes to a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def paths(self) -> frozenset[str]:
        """Return the path of every file, below the root."""
        return frozenset(str(path.relative_to(self._root)) for path in self._root.rglob("*") if path.is_file())

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        (self._root / path).write_bytes(content)

    def remove(self, path: str) -> None:
        (self._root / path).unlink()
