"""Where the reference sink writes: a directory in which each partition of a topic is a file of lines.

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
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from cdc_core import ConfigError, RetryableSinkError, SinkContext

_POLL_S = 0.005
_SAFE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"


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
        topics = [context.topics().of(table) for table in context.tables]
        return cls(Path(path), count=context.options.partitions, patience_s=context.options.patience, topics=topics)

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
