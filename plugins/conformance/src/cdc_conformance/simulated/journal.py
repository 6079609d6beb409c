"""The file of the simulated database: one event a line, append-only, shared by any number of processes."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Journal"]

_NAME = "events.jsonl"


class Journal:
    """Reads the events of a directory in order, each once, and appends new ones under a lock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._path = directory / _NAME
        self.offset = 0
        """Where the unread events begin."""

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def unread(self) -> Iterator[dict[str, Any]]:
        """Yield the events that were appended since the last call. An unfinished line does not count."""
        try:
            if os.stat(self._path).st_size <= self.offset:  # the common case
                return
            with self._path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return
        for line in data.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                return
            self.offset += len(line)
            yield json.loads(line)

    def complete(self) -> bytes:
        """Return everything that was written, without an unfinished line."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return b""
        return data[: data.rfind(b"\n") + 1]

    def rewind(self, offset: int = 0) -> None:
        """Continue with the event at *offset*, by default the first."""
        self.offset = offset

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep all other writers out of the block. Not reentrant. The directory must exist."""
        with (self.directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def append(self, event: Mapping[str, Any]) -> None:
        """Append *event*; it counts as read. Call it only while `locked`, after all events were read."""
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        with self._path.open("ab") as file:
            if file.tell() > self.offset:  # a writer died in the middle of its line
                os.truncate(file.fileno(), self.offset)
            file.write(line)
        self.offset += len(line)
