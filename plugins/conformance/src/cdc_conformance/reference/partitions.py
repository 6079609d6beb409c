"""A destination that is a directory: each partition of a topic is a file of lines, appended to and never changed.

<root>/<topic, percent-encoded>/<partition>.jsonl    {"key": base64, "value": base64, "updated": "…"}
<root>/.lock                                         held by whoever writes, and by whoever stops all writing
<root>/.refused                                      keys that this destination does not take, base64, a line each
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from cdc_core.errors import RetryableSinkError

__all__ = ["Line", "Partitions", "encoded"]

_POLL_S = 0.005
_MOST_SAFE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One message; `updated` is None for a resolved mark."""

    key: bytes | None
    value: bytes | None
    updated: str | None


class Partitions:
    """The directory. Raises, everywhere: RetryableSinkError when it cannot be reached."""

    def __init__(self, root: Path, *, count: int, patience_s: float) -> None:
        self.root = root
        self.count = count
        self._patience_s = patience_s

    def create(self, topics: Sequence[str]) -> None:
        """Return when every partition of *topics* is there; those that were keep what they hold."""
        with self._reaching():
            for topic in topics:
                self._directory(topic).mkdir(parents=True, exist_ok=True)
                for partition in range(self.count):
                    self.path(topic, partition).touch()

    def append(self, topic: str, partition: int, lines: Sequence[Line]) -> int:
        """Return how many bytes *lines* took, once they are in the file, all together."""
        text = encoded(lines)
        with self._reaching(), self.writing():
            self._directory(topic).mkdir(parents=True, exist_ok=True)
            with self.path(topic, partition).open("ab", buffering=0) as file:
                file.truncate(self._whole(topic, partition))
                file.write(text)
        return len(text)

    def cut(self, topic: str, partition: int, size: int) -> None:
        """Cut a partition off after *size* bytes, as only broken sinks do."""
        with self._reaching(), self.writing():
            os.truncate(self.path(topic, partition), size)

    def size(self, topic: str, partition: int) -> int:
        """Return how many bytes a partition has."""
        with self._reaching():
            path = self.path(topic, partition)
            return path.stat().st_size if path.exists() else 0

    def probe(self) -> None:
        """Return when something could be written."""
        with self._reaching(), self.writing():
            pass

    def is_locked(self) -> bool:
        """Return whether somebody keeps others from writing."""
        with self._reaching(), (self.root / ".lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def refused(self) -> frozenset[bytes]:
        """Return the keys that are not taken here."""
        with self._reaching():
            try:
                return frozenset(map(base64.b64decode, (self.root / ".refused").read_text().split()))
            except (FileNotFoundError, NotADirectoryError):
                return frozenset()

    def read(self, topic: str, partition: int) -> Iterator[Line]:
        """Yield the lines of a partition that are whole."""
        with self._reaching():
            try:
                body = self.path(topic, partition).read_bytes()
            except FileNotFoundError:
                return
        for text in body.split(b"\n")[:-1]:
            fields = json.loads(text)
            yield Line(key=_bytes(fields["key"]), value=_bytes(fields["value"]), updated=fields["updated"])

    def path(self, topic: str, partition: int) -> Path:
        return self._directory(topic) / f"{partition}.jsonl"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock meanwhile. Raises: RetryableSinkError when it does not come free in time."""
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
                            f"{self.root} took no message for {self._patience_s:g} s: see what holds its lock"
                        ) from None
                    pause.wait(_POLL_S)
            yield

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RetryableSinkError(f"{self.root} cannot be written: {os.strerror(error.errno or 0)}") from error

    def _directory(self, topic: str) -> Path:
        return self.root / quote(topic, safe=_MOST_SAFE)

    def _whole(self, topic: str, partition: int) -> int:
        """Return how long the file is without the half line that a writer left who died."""
        body = self.path(topic, partition).read_bytes()
        return body.rfind(b"\n") + 1


def encoded(lines: Sequence[Line]) -> bytes:
    """Return *lines* as they stand in a partition."""
    return b"".join(map(_text, lines))


def _text(line: Line) -> bytes:
    fields = {"key": _base64(line.key), "value": _base64(line.value), "updated": line.updated}
    return json.dumps(fields).encode() + b"\n"


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
