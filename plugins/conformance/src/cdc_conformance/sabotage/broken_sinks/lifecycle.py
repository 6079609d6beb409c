"""Mistakes in construction and `close`, and in the destination."""

from __future__ import annotations

import contextlib
import re

from cdc_conformance.reference.destination import ReferenceDestination
from cdc_conformance.reference.sink import ReferenceSink
from cdc_conformance.sabotage.broken_sinks.tampering import cut, probe
from cdc_core import (
    ConfigError,
    Flushed,
    RetryableSinkError,
    RowBatch,
    SinkContext,
    SliceInfo,
    TableName,
)

__all__ = [
    "AcceptsAnyDestination",
    "ClosesOnlyAfterBegin",
    "ClosesOnlyOnce",
    "ConnectsForTopics",
    "CreatesInConstructor",
    "EmptiesTopics",
    "FlattensNames",
    "IgnoresFullNames",
    "NeedsRows",
    "NeedsSomethingToFlush",
    "ProbesByWriting",
    "RefusesKnownSlices",
    "RequiresDirectory",
    "ShowsItsBuffer",
    "TreatsEmptyAsMissing",
    "WritesAfterClose",
]


class CreatesInConstructor(ReferenceSink):
    """Creates its directory in the constructor."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        with contextlib.suppress(OSError):
            self.partitions.root.mkdir(parents=True, exist_ok=True)


class ClosesOnlyAfterBegin(ReferenceSink):
    """Sets in `begin` what `close` needs."""

    session: str

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.session = "open"

    def close(self) -> None:
        assert self.session == "open"
        super().close()


class ClosesOnlyOnce(ReferenceSink):
    """Closes a handle that is closed already."""

    def close(self) -> None:
        self.require_open()
        super().close()


class RefusesKnownSlices(ReferenceSink):
    """Uses the numbers of a slice as a name that must be new."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        name = self.partitions.root / f".slice-{self.context.epoch}-{slice_.step}-{slice_.index}"
        try:
            name.touch(exist_ok=False)
        except FileExistsError:
            raise RetryableSinkError(f"{name} exists already; wait until it is removed") from None
        except OSError as error:
            raise RetryableSinkError(f"cannot create {name}; try again") from error


class WritesAfterClose(ReferenceSink):
    """Never checks whether it is closed."""

    def require_open(self) -> None:
        """Always open."""


class NeedsRows(ReferenceSink):
    """Looks at the first row of every batch."""

    def emit(self, rows: RowBatch) -> None:
        rows.shown_key(0)
        super().emit(rows)


class NeedsSomethingToFlush(ReferenceSink):
    """Raises an error when there is nothing to flush."""

    any_emitted = False

    def emit(self, rows: RowBatch) -> None:
        self.any_emitted = True
        super().emit(rows)

    def flush(self) -> Flushed:
        if not self.any_emitted:
            raise RetryableSinkError("there is nothing to flush; emit rows first")
        return super().flush()


class ShowsItsBuffer(ReferenceSink):
    """Has a `repr` that works only before `close`."""

    def __repr__(self) -> str:
        self.require_open()
        return f"ShowsItsBuffer({len(self.buffer)} lines)"


class RequiresDirectory(ReferenceDestination):
    """Refuses in `check` a directory that `prepare` would create."""

    def check(self) -> None:
        super().check()
        if not self.partitions.root.is_dir():
            raise ConfigError(f"the directory {self.partitions.root} does not exist; create it")


class ProbesByWriting(ReferenceDestination):
    """Creates a file in `check` and removes it again."""

    def check(self) -> None:
        super().check()
        nearest = next(path for path in (self.partitions.root, *self.partitions.root.parents) if path.exists())
        file = nearest / f"{self.partitions.root.name}.probe"
        file.touch()
        file.unlink()


class AcceptsAnyDestination(ReferenceDestination):
    """Checks nothing, because the first row will show."""

    def check(self) -> None:
        """Return at once."""


class TreatsEmptyAsMissing(ReferenceDestination):
    """Creates each topic that has no rows, although it exists."""

    def prepare(self) -> None:
        probe(self.partitions)
        for topic in self.partitions.topics:
            directory = self.partitions.path(topic, 0).parent
            if directory.exists() and not any(True for part in range(3) for _ in self.partitions.read(topic, part)):
                raise RetryableSinkError(f"{directory} exists; remove it")
        super().prepare()


class EmptiesTopics(ReferenceDestination):
    """Starts every run with empty topics."""

    def prepare(self) -> None:
        super().prepare()
        for topic, partition in self.partitions.endpoints:
            cut(self.partitions, topic, partition)


class ConnectsForTopics(ReferenceDestination):
    """Creates a topic to find out its name."""

    def topic(self, table: TableName) -> str:
        topic = super().topic(table)
        with contextlib.suppress(OSError):
            self.partitions.path(topic, 0).parent.mkdir(parents=True, exist_ok=True)
        return topic


class IgnoresFullNames(ReferenceDestination):
    """Names a topic after the table alone."""

    def topic(self, table: TableName) -> str:
        return table.table


class FlattensNames(ReferenceDestination):
    """Replaces every character that its destination does not accept by an underscore."""

    def topic(self, table: TableName) -> str:
        return re.sub(r"[^a-z0-9.]", "_", super().topic(table).lower())
