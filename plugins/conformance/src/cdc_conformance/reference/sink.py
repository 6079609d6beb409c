"""The reference sink: appends messages and resolved marks to `Partitions`."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from cdc_conformance.reference.partitions import Line, Partitions
from cdc_core import (
    MB,
    ByteSize,
    ConfigError,
    Destination,
    Duration,
    Endpoint,
    Flushed,
    RefusedRow,
    RefusedRowsError,
    ResolvedSink,
    RowBatch,
    Sink,
    SinkContext,
    SinkReader,
    SinkRegistration,
    StoredMessage,
    TerminalSinkError,
    Timestamp,
    option,
)

REFERENCE_SINK = SinkRegistration(
    name="reference",
    schemes=("reference",),
    sink=f"{__name__}:ReferenceSink",
    resolved_sink=f"{__name__}:ReferenceResolvedSink",
    destination=f"{__name__}:ReferenceDestination",
    reader=f"{__name__}:ReferenceReader",
    options="cdc_conformance.reference.sink:ReferenceOptions",
    output="messages",
    routes=True,
    summary="Partitions in a directory, for the conformance kit's own tests",
)


class Closable:
    """A part of a sink that can be closed, and says so when it is used afterwards."""

    closed = False

    def close(self) -> None:
        self.closed = True

    def require_open(self) -> None:
        """Raises: TerminalSinkError after `close`."""
        if self.closed:
            raise TerminalSinkError("the reference sink is closed; open another one")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOptions:
    """Options of the reference sink."""

    partitions: int = option(3, doc="Number of partitions per topic.")
    buffer_size: ByteSize = option(ByteSize(MB), doc="Bytes of messages to buffer before they are written.")
    max_message_bytes: ByteSize = option(ByteSize(MB // 4), doc="Maximum size of the value of a message.")
    patience: Duration = option(Duration(30.0), doc="How long to wait while the destination accepts no messages.")
    password: str | None = option(None, doc="Not used. Tests check that it is never shown.", secret=True)

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise ValueError("option 'partitions' must be at least 1")


class ReferenceSink(Closable, Sink):
    """Appends each row to the partition that its key selects, unless the row is already there.

    Holds at most `buffer_size` bytes and one batch of messages. What is flushed survives the death of the process, not
    of the machine. A row whose key is refused is listed in `Flushed.refused`. A message that is too large is refused
    together with all rows since the last flush, to show both ways.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self.options: ReferenceOptions = context.options
        self.partitions = Partitions.of(context)
        self._written: dict[tuple[str, int], set[tuple[bytes | None, str | None]]] = {}
        self.buffer: list[tuple[str, int, Line]] = []
        self.buffered_bytes = 0
        self.emitted = 0
        self.refused: list[RefusedRow] = []
        self.messages = 0
        self.bytes = 0

    def emit(self, rows: RowBatch) -> None:
        self.require_open()
        topic = self.context.topics().of_rows(rows)
        messages = self.context.encoder.encode(rows, topic=topic)
        refused_keys = self.partitions.refused()
        columns = (messages.key, messages.value, messages.updated)
        for key, value, updated in zip(*(column.to_pylist() for column in columns), strict=True):
            if key in refused_keys:
                reason = f"{self.partitions.root} refuses the key {key!r}"
                self.refused.append(RefusedRow(index=self.emitted, reason=reason))
            else:
                line = Line(key=key, value=value, updated=str(Timestamp(**updated)))
                self.buffer.append((topic, self.partition_of(key), line))
                self.buffered_bytes += len(key or b"") + len(value or b"")
            self.emitted += 1
        if self.buffered_bytes > self.options.buffer_size:
            self.write()

    def flush(self) -> Flushed:
        self.require_open()
        self.write()
        flushed = Flushed(messages=self.messages, bytes=self.bytes, refused=tuple(self.refused))
        self.forget()
        return flushed

    def partition_of(self, key: bytes | None) -> int:
        return zlib.crc32(key or b"") % self.options.partitions

    def write(self) -> None:
        """Return when the buffer is in the partitions. Raises: RefusedRowsError when a message is too large."""
        largest = max((len(line.value or b"") for *_, line in self.buffer), default=0)
        if largest > self.options.max_message_bytes:
            self.forget()
            raise RefusedRowsError(
                f"{self.partitions.root} refuses a message of {largest} bytes; set max_message_bytes to more than"
                f" {self.options.max_message_bytes}"
            )
        lines_of: dict[tuple[str, int], list[Line]] = defaultdict(list)
        for topic, partition, line in self.buffer:
            lines_of[topic, partition].append(line)
        for (topic, partition), lines in lines_of.items():
            self.bytes += self.append(topic, partition, self.unwritten(topic, partition, lines))
        self.messages += len(self.buffer)
        self.buffer, self.buffered_bytes = [], 0

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        return self.partitions.append(topic, partition, lines) if lines else 0

    def unwritten(self, topic: str, partition: int, lines: list[Line]) -> list[Line]:
        """Return those of *lines* that are not in the partition yet, whatever else it holds of their keys."""
        written = self._written.get((topic, partition))
        if written is None:
            there = self.partitions.read(topic, partition)
            written = self._written[topic, partition] = {(line.key, line.updated) for line in there}
        new = [line for line in lines if (line.key, line.updated) not in written]
        written.update((line.key, line.updated) for line in new)
        return new

    def forget(self) -> None:
        """Start again as after a flush."""
        self.buffer, self.buffered_bytes = [], 0
        self.emitted, self.refused = 0, []
        self.messages = self.bytes = 0


class ReferenceResolvedSink(Closable, ResolvedSink):
    """Appends each mark to every partition of every topic."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self.partitions = Partitions.of(context)

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.require_open()
        for topic, partition in self.partitions.endpoints:
            self.partitions.append(topic, partition, [self.mark(topic, timestamp)])

    def mark(self, topic: str, timestamp: Timestamp) -> Line:
        return Line(key=None, value=self.context.encoder.encode_resolved(topic, timestamp), updated=None)


class ReferenceDestination(Destination):
    """Needs a directory, or a place where one can be created."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self.partitions = Partitions.of(context)

    def check(self) -> None:
        root = self.partitions.root
        nearest = next(path for path in (root, *root.parents) if path.exists())
        if not nearest.is_dir():
            raise ConfigError(f"cannot use {root}: {nearest} is not a directory; choose another path")

    def local_directory(self) -> Path:
        return self.partitions.root

    def prepare(self) -> None:
        self.partitions.create()


class ReferenceReader(SinkReader):
    """Reads the partitions, one after the other."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._partitions = Partitions.of(context)

    def read(self) -> Iterator[StoredMessage]:
        for topic, partition in self._partitions.endpoints:
            for line in self._partitions.read(topic, partition):
                yield StoredMessage(topic=topic, partition=partition, key=line.key, value=line.value)

    def endpoints(self) -> Collection[Endpoint]:
        return self._partitions.endpoints
