"""The reference sink: several partitions a topic, in a directory. Keeps every promise that a sink can declare."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdc_conformance.reference.partitions import Line, Partitions
from cdc_core import (
    ConfigError,
    Endpoint,
    Flushed,
    PartialWriteError,
    RefusedRowsError,
    RowBatch,
    Sink,
    SinkContext,
    SinkReader,
    SinkRegistration,
    SliceInfo,
    StoredMessage,
    TableName,
    TerminalSinkError,
    Timestamp,
)
from cdc_core.options import MB, ByteSize, Duration, option

__all__ = ["REFERENCE_SINK", "ReferenceOptions", "ReferenceReader", "ReferenceSink"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOptions:
    """Options of the reference sink."""

    partitions: int = option(3, doc="Partitions of each topic.")
    buffer_size: ByteSize = option(ByteSize(MB), doc="Bytes of messages that are held before they are written.")
    max_message_bytes: ByteSize = option(ByteSize(MB // 4), doc="The largest value that a message may have.")
    patience: Duration = option(Duration(30.0), doc="How long to wait for a destination that takes nothing.")
    password: str | None = option(None, doc="Shown to nobody, and asked for by nothing.", secret=True)

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise ValueError("option 'partitions' must be at least 1")


class ReferenceSink(Sink):
    """Appends each row to the partition that its key chooses. A row that is there already is not written again.

    Holds at most `buffer_size` bytes and one batch of messages. What is flushed outlives the process, not the machine.
    Keys that the destination refuses are told one by one; of messages that are too large it refuses all that is written
    with them.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self.options: ReferenceOptions = context.options
        self.partitions = partitions_of(context)
        self.buffer: list[tuple[str, int, Line]] = []
        self._buffered_bytes = 0
        self._flushed = Flushed()
        self.given = 0
        self._there: dict[tuple[str, int], set[tuple[bytes | None, str]]] = {}
        self._slice: SliceInfo | None = None
        self._closed = False

    def check(self) -> None:
        root = self.partitions.root
        nearest = next(path for path in (root, *root.parents) if path.exists())
        if not nearest.is_dir():
            raise ConfigError(f"{root} cannot be used: {nearest} is not a directory; choose another")

    def topic(self, table: TableName) -> str:
        return self.context.topics().of(table)

    def prepare(self) -> None:
        self.partitions.create(self.topics)

    def begin(self, slice_: SliceInfo) -> None:
        self.require_open()
        self.forget()
        self._slice = slice_

    def emit(self, rows: RowBatch) -> None:
        self.require_open()
        if self._slice is None:
            raise TerminalSinkError("the reference sink was given rows before begin; call begin first")
        batch = self.context.encoder.encode(rows, topic=self.topic(rows.schema.name))
        refused = self.partitions.refused()
        first, self.given = self.given, self.given + len(rows)
        failures: list[tuple[int, str]] = []
        for number, (key, value, updated) in enumerate(
            zip(batch.key.to_pylist(), batch.value.to_pylist(), batch.updated.to_pylist(), strict=True), start=first
        ):
            if key in refused:
                failures.append((number, f"the key {key!r} is refused by {self.partitions.root}"))
                continue
            time = str(Timestamp(updated["wall"], updated["logical"]))
            self.buffer.append((batch.topic, self.partition_of(key), Line(key=key, value=value, updated=time)))
            self._buffered_bytes += len(key or b"") + len(value or b"")
        if self._buffered_bytes > self.options.buffer_size:
            self.write()
        if failures:
            self.refuse(rows, failures)

    def flush(self) -> Flushed:
        self.require_open()
        self.write()
        self.given = 0
        flushed, self._flushed = self._flushed, Flushed()
        return flushed

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.require_open()
        for topic in self.topics:
            mark = Line(key=None, value=self.context.encoder.encode_resolved(topic, timestamp), updated=None)
            for partition in range(self.options.partitions):
                self.partitions.append(topic, partition, [mark])

    def close(self) -> None:
        self.forget()
        self._closed = True

    @property
    def topics(self) -> list[str]:
        return [self.topic(table) for table in self.context.tables]

    def partition_of(self, key: bytes | None) -> int:
        return zlib.crc32(key or b"") % self.options.partitions

    def write(self) -> None:
        """Return when what is buffered is in the partitions, without what was there already."""
        largest = max((len(line.value or b"") for *_, line in self.buffer), default=0)
        if largest > self.options.max_message_bytes:
            self.forget()
            raise RefusedRowsError(
                f"{self.partitions.root} refuses a message of {largest} bytes, more than max_message_bytes ="
                f" {self.options.max_message_bytes}: raise that"
            )
        shares: dict[tuple[str, int], list[Line]] = defaultdict(list)
        for topic, partition, line in self.buffer:
            shares[topic, partition].append(line)
        nbytes = sum(self.append(*place, self.unwritten(*place, lines)) for place, lines in shares.items())
        self._flushed = Flushed(messages=self._flushed.messages + len(self.buffer), bytes=self._flushed.bytes + nbytes)
        self.buffer, self._buffered_bytes = [], 0

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        return self.partitions.append(topic, partition, lines) if lines else 0

    def unwritten(self, topic: str, partition: int, lines: list[Line]) -> list[Line]:
        """Return those of *lines* that the partition does not have yet, whatever else it has of their keys."""
        there = self._there.get((topic, partition))
        if there is None:
            written = self.partitions.read(topic, partition)
            there = self._there[topic, partition] = {(line.key, line.updated) for line in written if line.updated}
        new = [line for line in lines if line.updated is None or (line.key, line.updated) not in there]
        there.update((line.key, line.updated) for line in new if line.updated)
        return new

    def refuse(self, rows: RowBatch, failures: list[tuple[int, str]]) -> None:
        raise PartialWriteError(f"{len(failures)} rows of table {rows.schema.name} were refused", failures=failures)

    def require_open(self) -> None:
        if self._closed:
            raise TerminalSinkError("the reference sink is closed; open another")

    def forget(self) -> None:
        self.buffer, self._buffered_bytes = [], 0
        self._flushed = Flushed()
        self.given = 0


class ReferenceReader(SinkReader):
    """Reads the partitions."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._partitions = partitions_of(context)

    def read(self) -> Iterator[StoredMessage]:
        for topic, partition in self._places():
            for line in self._partitions.read(topic, partition):
                yield StoredMessage(topic=topic, partition=partition, key=line.key, value=line.value)

    def endpoints(self) -> Collection[Endpoint]:
        return self._places()

    def _places(self) -> list[tuple[str, int]]:
        topics = [self.context.topics().of(table) for table in self.context.tables]
        return [(topic, partition) for topic in topics for partition in range(self._partitions.count)]

    def close(self) -> None:
        """There is nothing to let go of."""


def partitions_of(context: SinkContext) -> Partitions:
    """Return the destination of *context*. Raises: ConfigError when its URI has more than a path."""
    options: Any = context.options
    path = context.uri.partition("://")[2]
    if not path.startswith("/"):
        raise ConfigError("the reference sink is a directory of this machine; write reference:///path")
    return Partitions(Path(path), count=options.partitions, patience_s=options.patience)


REFERENCE_SINK = SinkRegistration(
    name="reference",
    target="cdc_conformance.reference.sink:ReferenceSink",
    options="cdc_conformance.reference.sink:ReferenceOptions",
    reader="cdc_conformance.reference.sink:ReferenceReader",
    schemes=("reference",),
    output="messages",
    summary="Partitions in a directory, for the conformance kit's own tests",
)
