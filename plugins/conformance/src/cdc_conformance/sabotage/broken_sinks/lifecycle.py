"""Mistakes in a sink's life, and in what the driver asks of it."""

from __future__ import annotations

import re
from typing import Any

from cdc_conformance.reference.sink import ReferenceSink
from cdc_core import ConfigError, Flushed, RetryableSinkError, RowBatch, SinkContext, SliceInfo, TableName
from cdc_core.errors import CdcError

__all__ = [
    "AcceptsAnyDestination",
    "ClosesOnlyOnce",
    "ClosesOnlyWhatBegan",
    "ConnectsForTopics",
    "CreatesOnConstruction",
    "DemandsADirectory",
    "FlattensNames",
    "NamesTopicsByTable",
    "NeedsRows",
    "NeedsSomethingToFlush",
    "ProbesByWriting",
    "RefusesKnownSlices",
    "ShowsItsBuffer",
    "StartsOver",
    "TakesEmptyForMissing",
    "TakesRowsAnyTime",
    "WritesWhenClosed",
]


class CreatesOnConstruction(ReferenceSink):
    """Makes its directory in the constructor, because that is where one thinks of it."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        try:
            self.partitions.root.mkdir(parents=True, exist_ok=True)
        except OSError:
            return


class ClosesOnlyWhatBegan(ReferenceSink):
    """Sets up in `begin` what `close` takes for granted."""

    session: str

    def __getattribute__(self, name: str) -> Any:
        if name in ("check", "prepare", "begin", "emit_resolved"):
            self.session = "open"
        return super().__getattribute__(name)

    def close(self) -> None:
        assert self.session == "open"
        super().close()


class ClosesOnlyOnce(ReferenceSink):
    """Closes a handle that is closed already."""

    def close(self) -> None:
        self.require_open()
        super().close()


class RefusesKnownSlices(ReferenceSink):
    """Takes a slice's numbers for a name that nobody else may have."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        name = self.partitions.root / f".slice-{self.context.epoch}-{slice_.step}-{slice_.index}"
        try:
            name.touch(exist_ok=False)
        except FileExistsError:
            raise RetryableSinkError(f"{name} is written already; wait for it") from None
        except OSError as error:
            raise RetryableSinkError(f"{name} cannot be made; try again") from error


class WritesWhenClosed(ReferenceSink):
    """Never looks whether it was closed."""

    def require_open(self) -> None:
        """Always open."""


class TakesRowsAnyTime(ReferenceSink):
    """Takes rows without knowing which slice they belong to."""

    def emit(self, rows: RowBatch) -> None:
        if self._slice is None:
            self.require_open()
            return
        super().emit(rows)


class NeedsRows(ReferenceSink):
    """Looks at the first row of every batch."""

    def emit(self, rows: RowBatch) -> None:
        rows.shown_key(0)
        super().emit(rows)


class NeedsSomethingToFlush(ReferenceSink):
    """Takes for an error that there is nothing to do."""

    def flush(self) -> Flushed:
        if self._slice is not None and not self.emitted:
            raise RetryableSinkError("there is nothing to flush; emit first")
        return super().flush()

    emitted = False

    def emit(self, rows: RowBatch) -> None:
        self.emitted = True
        super().emit(rows)


class ShowsItsBuffer(ReferenceSink):
    """Has a `repr` that works only between `begin` and `close`."""

    def __repr__(self) -> str:
        self.require_open()
        return f"ShowsItsBuffer({len(self.buffer)} lines)"


class DemandsADirectory(ReferenceSink):
    """Refuses in `check` what `prepare` would make."""

    def check(self) -> None:
        super().check()
        if not self.partitions.root.is_dir():
            raise ConfigError(f"{self.partitions.root} is not there; make it")


class ProbesByWriting(ReferenceSink):
    """Tries in `check` whether a file can be written, and removes it again."""

    def check(self) -> None:
        super().check()
        nearest = next(path for path in (self.partitions.root, *self.partitions.root.parents) if path.exists())
        probe = nearest / f"{self.partitions.root.name}.probe"
        probe.touch()
        probe.unlink()


class AcceptsAnyDestination(ReferenceSink):
    """Checks nothing: the first row will tell."""

    def check(self) -> None:
        """All is well."""


class TakesEmptyForMissing(ReferenceSink):
    """Creates each topic that has no rows, though it is there."""

    def prepare(self) -> None:
        self.partitions.probe()
        for topic in self.topics:
            if not any(True for partition in range(3) for _ in self.partitions.read(topic, partition)):
                directory = self.partitions.path(topic, 0).parent
                if directory.exists():
                    raise RetryableSinkError(f"{directory} exists; remove it")
        super().prepare()


class StartsOver(ReferenceSink):
    """Begins every run with empty topics."""

    def prepare(self) -> None:
        super().prepare()
        for topic in self.topics:
            for partition in range(self.options.partitions):
                self.partitions.path(topic, partition).write_bytes(b"")


class ConnectsForTopics(ReferenceSink):
    """Looks up in the destination how a topic is called."""

    def topic(self, table: TableName) -> str:
        topic = super().topic(table)
        try:
            self.partitions.create([topic])
        except CdcError:
            return topic
        return topic


class NamesTopicsByTable(ReferenceSink):
    """Makes a topic of the table's name alone."""

    def topic(self, table: TableName) -> str:
        return table.table


class FlattensNames(ReferenceSink):
    """Replaces whatever its destination does not like by one and the same character."""

    def topic(self, table: TableName) -> str:
        return re.sub(r"[^a-z0-9]", "_", super().topic(table).lower())
