"""What the sink asks of a place to keep files in: objects that become visible only when whole."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from cdc_core.errors import RetryableSinkError, TerminalSinkError

__all__ = ["IN_PROGRESS", "Chunk", "Staged", "Store", "failure"]

IN_PROGRESS = ".inprogress"
"""Directory under the root for files that are being written, on stores that need one. Readers skip it."""

Chunk = Any
"""A piece of a body: bytes, or anything else with the buffer protocol, such as `pyarrow.Buffer`."""

# The rule: what can heal while the changefeed stays as it is, is tried again; what cannot, ends it. An administrator
# can free space, mount a disk writable or grant a permission. Nobody can make a file system take a longer name.
_HOPELESS = {
    errno.ENAMETOOLONG: "shorten topic_prefix or the sink's path",
    errno.EXDEV: "all directories under the root must be on one file system",
    errno.EINVAL: "the file system does not take such a file",
    errno.EILSEQ: "the file system does not take such a name",
    errno.EFBIG: "choose a smaller file_size",
    errno.ENOTSUP: "the file system lacks an operation that whole files need",
    errno.ENOSYS: "the file system lacks an operation that whole files need",
}
_REMEDIES = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there or raise the quota",
    errno.EROFS: "mount it writable",
    errno.EACCES: "let this process's user write there",
    errno.EPERM: "let this process's user write there",
    errno.ENOTDIR: "remove the file that stands where a directory should be",
    errno.EISDIR: "remove the directory that stands where a file should be",
    errno.ENOENT: "something removed a directory of the sink while it was written to",
}


class Staged(ABC):
    """An object on its way, invisible so far. Either `publish` or `discard` is called, once."""

    @abstractmethod
    def publish(self) -> None:
        """Make the object visible, whole and durable. One that fails leaves nothing visible. Raises: as the store."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what was brought to the store, as far as that can be done. Raises nothing."""


class Store(ABC):
    """A directory or bucket. One instance serves one sink, in one process, `stage` and what it returns many threads.

    Constructors have no side effects. Raises, everywhere but in `check`: RetryableSinkError and TerminalSinkError,
    naming the path.
    """

    name_limit: int
    """How many bytes of UTF-8 a name, or a key where there are no directories, may have."""
    visible_is_durable: ClassVar[bool] = True
    """Whether an object that can be read is there for good, whatever became of its writer."""

    @abstractmethod
    def check(self) -> None:
        """Return when the place is, or can be made, and can be written to. Changes nothing. Raises: ConfigError."""

    @abstractmethod
    def stage(self, path: str, chunks: Sequence[Chunk]) -> Staged:
        """Bring *chunks* as near to being one object at *path* below the root as can be without showing it.

        Where a store has no way to hide an object, all is done by `publish`, which then holds the bytes until it ends.
        """

    def put(self, path: str, chunks: Sequence[Chunk]) -> None:
        """Durably make *chunks* one object at *path* below the root, visible at once or not at all.

        Replaces an object of that name, which callers only do with the same content.
        """
        self.stage(path, chunks).publish()

    @abstractmethod
    def sweep(self) -> None:
        """Remove what earlier runs of the same changefeed left half written. Never touches another's or our run's."""

    def close(self) -> None:  # noqa: B027 (optional)
        """Let go of connections, without waiting for what they carry. May be called twice."""


def failure(place: str, error: OSError) -> RetryableSinkError | TerminalSinkError:
    """Return the error to raise for *error* that happened while writing to *place*."""
    if error.errno in _HOPELESS:
        return TerminalSinkError(f"cannot write {place}: {os.strerror(error.errno)}; {_HOPELESS[error.errno]}")
    number = error.errno
    if number is None and isinstance(error, PermissionError):  # clients of object stores give no number
        number = errno.EACCES
    reason = os.strerror(error.errno) if error.errno is not None else str(error) or type(error).__name__
    remedy = f"; {_REMEDIES[number]}" if number in _REMEDIES else ""
    return RetryableSinkError(f"cannot write {place}: {reason}{remedy}")
