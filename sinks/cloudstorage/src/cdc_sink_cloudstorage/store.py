"""A store: a place for files, in which a file becomes visible only when it is whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

IN_PROGRESS = ".inprogress"
"""Directory below the root for files that are being written, in stores that need one. Readers skip it."""

Chunk = Any
"""A piece of a body: bytes, or anything else with the buffer protocol, such as `pyarrow.Buffer`."""


class Staged(ABC):
    """An object that was uploaded and is not visible yet. The caller calls either `publish` or `discard`, once."""

    @abstractmethod
    def publish(self) -> None:
        """Make the object visible, whole and durable. A failure leaves nothing visible. Raises: as `Store`."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what was uploaded, as far as possible. Raises nothing."""


class Store(ABC):
    """A directory or bucket. One instance belongs to one part of a sink in one process.

    Several threads may call `put`, `stage` and the methods of `Staged` at the same time. Constructors have no side
    effects. Raises, everywhere except in `check`: RetryableSinkError and TerminalSinkError, which name the path.
    """

    max_name_bytes: int
    """Most bytes of UTF-8 in a file name, or in a key where the store has no directories."""
    visible_is_durable: ClassVar[bool] = True
    """Whether an object that can be read is durable, even if its writer died."""

    @abstractmethod
    def check(self) -> None:
        """Return when the place is writable, or can be created. Changes nothing. Raises: ConfigError."""

    @abstractmethod
    def stage(self, path: str, chunks: Sequence[Chunk]) -> Staged:
        """Upload *chunks* as an object at *path* below the root, as far as the store can without showing it.

        In a store that cannot hide an object, `Staged.publish` does the whole upload and holds the bytes until then.
        """

    def put(self, path: str, chunks: Sequence[Chunk]) -> None:
        """Return when *chunks* are one durable object at *path* below the root. It appears whole or not at all.

        Replaces an object of that name. Callers do so only with the same content.
        """
        self.stage(path, chunks).publish()

    @abstractmethod
    def sweep(self) -> None:
        """Remove unfinished files of earlier attempts of the same changefeed. Leaves all other files alone."""

    def close(self) -> None:  # noqa: B027 (optional)
        """Close connections without waiting for uploads. May be called twice."""
