"""What is wrong with a store, and the errors that report it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from cdc_core import ConfigError, RetryableSinkError, TerminalSinkError

__all__ = ["StoreProblem", "os_problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProblem:
    """A reason, such as "the bucket does not exist", and a remedy: a sentence without its full stop.

    In `check` every problem is a configuration error. During a run the sink retries unless the problem is `permanent`:
    an administrator can grant permissions, repair the network or create the bucket meanwhile.
    """

    reason: str
    remedy: str = ""
    permanent: bool = False

    def refusal(self, shown: str) -> ConfigError:
        """Return the error that `check` raises for the sink *shown*."""
        return ConfigError(f"sink {shown} cannot be used: {self}")

    def failure(self, place: str) -> RetryableSinkError | TerminalSinkError:
        """Return the error to raise when *place* could not be written."""
        kind = TerminalSinkError if self.permanent else RetryableSinkError
        return kind(f"cannot write {place}: {self}")

    def __str__(self) -> str:
        return f"{self.reason}. {self.remedy}" if self.remedy else self.reason


def os_problem(error: OSError) -> StoreProblem:
    """Return what *error* means, by its number.

    An administrator can free space, mount a disk writable or grant a permission, so these are not permanent. A file
    system never accepts a longer name than it has room for.
    """
    number = error.errno
    if number is None:  # clients of object stores set no number
        remedy = _REMEDIES[errno.EACCES] if isinstance(error, PermissionError) else ""
        return StoreProblem(reason=str(error) or type(error).__name__, remedy=remedy)
    permanent = number in _PERMANENT
    remedy = (_PERMANENT if permanent else _REMEDIES).get(number, "")
    return StoreProblem(reason=os.strerror(number), remedy=remedy, permanent=permanent)


_LACKS_OPERATION = "The file system lacks an operation that the sink needs; choose another one"
_PERMANENT = {
    errno.ENAMETOOLONG: "Shorten topic_prefix or the path of the sink",
    errno.EXDEV: "Keep all directories below the root on one file system",
    errno.EINVAL: "The file system does not accept such a file; choose another one",
    errno.EILSEQ: "The file system does not accept such a name; choose another one",
    errno.EFBIG: "Lower file_size",
    errno.ENOTSUP: _LACKS_OPERATION,
    errno.ENOSYS: _LACKS_OPERATION,
}
_REMEDIES = {
    errno.ENOSPC: "Free some space there",
    errno.EDQUOT: "Free some space there or raise the quota",
    errno.EROFS: "Mount the file system writable",
    errno.EACCES: "Grant this process's user write permission there",
    errno.EPERM: "Grant this process's user write permission there",
    errno.ENOTDIR: "Remove the file that is in the place of a directory",
    errno.EISDIR: "Remove the directory that is in the place of the file",
    errno.ENOENT: "A directory of the sink was removed during the write",
}
