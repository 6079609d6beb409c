"""The reference sink: appends messages and resolved marks to a directory; each partition of a topic is a file of lines.

<root>/<topic, percent-encoded>/<partition>.lines    a pickled `Line` in base64 on each line
<root>/.lock                                         locked by a writer, and by a test that stops all writing
<root>/.refused                                      keys that the destination refuses, in base64, one a line

Lines are only appended; a line that was written never changes.
"""

from __future__ import annotations

import base64
import fcntl
import os
import pickle
import shutil
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

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
    RetryableSinkError,
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

_POLL_S = 0.005
_SAFE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One message. `updated` is None for a resolved mark."""

    key: bytes | None
    value: bytes | None
    updated: str | None

    def to_bytes(self) -> bytes:
        """Return the line as it is written."""
        return base64.b64encode(pickle.dumps(self)) + b"\n"


class Partitions:
    """The partitions of some topics. Raises, everywhere: RetryableSinkError when the directory cannot be used."""

    def __init__(self, root: Path, *, count: int, patience_s: float, topics: Sequence[str] = ()) -> None:
        self.root = root
        self.count = count
        self.topics = topics
        self._patience_s = patience_s

    @classmethod
    def of(cls, context: SinkContext) -> Partitions:
        """Return the partitions of every topic of a changefeed. Raises: ConfigError for a URI that is not a path."""
        path = context.uri.partition("://")[2]
        if not path.startswith("/"):
            raise ConfigError("the reference sink writes to a local directory; write reference:///path")
        options: ReferenceOptions = context.options
        topics = [context.topics().of(table) for table in context.tables]
        return cls(Path(path), count=options.partitions, patience_s=options.patience, topics=topics)

    @property
    def endpoints(self) -> list[tuple[str, int]]:
        """Every partition of every topic."""
        return [(topic, partition) for topic in self.topics for partition in range(self.count)]

    def create(self) -> None:
        """Return when every endpoint exists. An endpoint that existed keeps its lines."""
        with self.reaching():
            for topic, partition in self.endpoints:
                path = self.path(topic, partition)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()

    def append(self, topic: str, partition: int, lines: Sequence[Line]) -> int:
        """Return the size of *lines* when all of them are in the file."""
        text = b"".join(line.to_bytes() for line in lines)
        path = self.path(topic, partition)
        with self.reaching(), self.writing():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab", buffering=0) as file:
                file.truncate(path.read_bytes().rfind(b"\n") + 1)  # a killed writer may have left a part of a line
                file.write(text)
        return len(text)

    def refused(self) -> frozenset[bytes]:
        """Return the keys that the destination refuses."""
        with self.reaching():
            try:
                return frozenset(map(base64.b64decode, (self.root / ".refused").read_text().split()))
            except (FileNotFoundError, NotADirectoryError):
                return frozenset()

    def read(self, topic: str, partition: int) -> Iterator[Line]:
        """Yield the complete lines of a partition."""
        with self.reaching():
            try:
                body = self.path(topic, partition).read_bytes()
            except FileNotFoundError:
                return
        for text in body.split(b"\n")[:-1]:
            yield pickle.loads(base64.b64decode(text))

    def path(self, topic: str, partition: int) -> Path:
        return self.root / quote(topic, safe=_SAFE) / f"{partition}.lines"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock in the block. Raises: RetryableSinkError when another process holds it for too long."""
        self.root.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + self._patience_s
        pause = threading.Event()
        with (self.root / ".lock").open("wb") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise RetryableSinkError(
                            f"{self.root} accepted no message for {self._patience_s:g} s; find the process that holds"
                            " its lock"
                        ) from None
                    pause.wait(_POLL_S)
            yield

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Turn every OSError of the block into a RetryableSinkError."""
        try:
            yield
        except OSError as error:
            raise RetryableSinkError(f"cannot use {self.root}: {os.strerror(error.errno or 0)}") from error


class DirectoryDisturbance:
    """Moves the directory away, holds its lock, or makes it refuse keys, until the block ends."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._away = root.with_name(f"{root.name}.away")

    @contextmanager
    def broken(self) -> Iterator[None]:
        """The directory is missing. It returns with the same contents in other files, as from a backup."""
        self._root.mkdir(parents=True, exist_ok=True)
        self._root.rename(self._away)
        self._root.touch()
        try:
            yield
        finally:
            self._root.unlink()
            shutil.copytree(self._away, self._root)
            shutil.rmtree(self._away)

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Every write waits."""
        with (self._root / ".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def refusing(self, keys: Collection[bytes]) -> Iterator[None]:
        """The destination refuses messages with these keys."""
        refused = self._root / ".refused"
        refused.write_text("\n".join(base64.b64encode(key).decode() for key in keys))
        try:
            yield
        finally:
            refused.unlink()


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
