"""The reference sink's destination: a directory in which each partition of a topic is a file of lines.

<root>/<topic, percent-encoded>/<partition>.jsonl    {"key": base64, "value": base64, "updated": "…"}
<root>/.lock                                         locked by a writer, and by a test that stops all writing
<root>/.refused                                      keys that the destination refuses, in base64, one a line

Lines are only appended; a line that was written never changes.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from cdc_core import MB, ByteSize, ConfigError, Duration, RetryableSinkError, SinkContext, option

__all__ = ["DirectoryDisturbance", "Line", "Partitions", "ReferenceOptions"]

_POLL_S = 0.005
_SAFE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOptions:
    """Options of the reference sink."""

    partitions: int = option(3, doc="Partitions of each topic.")
    buffer_size: ByteSize = option(ByteSize(MB), doc="Bytes of messages to hold before they are written.")
    max_message_bytes: ByteSize = option(ByteSize(MB // 4), doc="The largest value that a message may have.")
    patience: Duration = option(Duration(30.0), doc="How long to wait while the destination accepts nothing.")
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
        """Return the line as it is written, for `from_bytes`."""
        fields = {"key": _base64(self.key), "value": _base64(self.value), "updated": self.updated}
        return json.dumps(fields).encode() + b"\n"

    @classmethod
    def from_bytes(cls, text: bytes) -> Line:
        fields = json.loads(text)
        return cls(key=_bytes(fields["key"]), value=_bytes(fields["value"]), updated=fields["updated"])


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
                file.truncate(_size_of_whole_lines(path))
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
            yield Line.from_bytes(text)

    def path(self, topic: str, partition: int) -> Path:
        return self.root / quote(topic, safe=_SAFE) / f"{partition}.jsonl"

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
                            f"{self.root} accepted no message for {self._patience_s:g} s; find out what holds its lock"
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


def _size_of_whole_lines(path: Path) -> int:
    """Return the size of a file without the incomplete line that a killed writer may have left."""
    return path.read_bytes().rfind(b"\n") + 1


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


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
