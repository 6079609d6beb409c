"""What is wrong with a store, and the errors that report it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Self

from cdc_core import ConfigError, RetryableSinkError, TerminalSinkError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProblem:
    """A reason, such as "the bucket does not exist", and a remedy: a sentence without its full stop.

    In `check` every problem is a configuration error. During a run the sink retries unless the problem is `permanent`,
    or `repairable`: someone must grant a permission, renew credentials or create the bucket.
    """

    reason: str
    remedy: str = ""
    permanent: bool = False
    repairable: bool = False
    outage: bool = True
    """Whether the store is out of reach, busy or full, if the problem is neither of these."""

    @classmethod
    def of_answer(cls, status: int, *, reason: str, remedy: str, busy: bool = False) -> Self:
        """Return the problem of an answer with an HTTP *status* that has no meaning of its own; 0 if there is none."""
        outage = busy or status >= 500 or status in (408, 429)
        return cls(reason=reason, remedy=remedy, repairable=status in (401, 403) and not busy, outage=outage)

    def refusal(self, shown: str) -> ConfigError:
        """Return the error that `check` raises for the sink *shown*."""
        return ConfigError(f"sink {shown} cannot be used: {self}", repairable=not self.permanent)

    def failure(self, place: str) -> RetryableSinkError | TerminalSinkError:
        """Return the error to raise when *place* could not be written."""
        text = f"cannot write {place}: {self}"
        if self.permanent or self.repairable:
            return TerminalSinkError(text, repairable=self.repairable)
        return RetryableSinkError(text, outage=self.outage)

    def __str__(self) -> str:
        return f"{self.reason}. {self.remedy}" if self.remedy else self.reason


class NotStoredError(Exception):
    """Something answered that it has taken a file, and the answer is not that of the store."""


NOT_STORED = StoreProblem(
    reason="the response reports success, but the store does not have the data that was sent",
    remedy="Check that the endpoint belongs to the store, and that no proxy responds in its place",
    repairable=True,
)


def os_problem(error: OSError) -> StoreProblem:
    """Return what *error* means, by its number.

    An administrator can free space, mount a disk writable or grant a permission, so these are not permanent. A file
    system never accepts a longer name than it has room for.
    """
    number = error.errno
    if number is None:  # clients of object stores set no number
        denied = isinstance(error, PermissionError)
        return StoreProblem(
            reason=str(error) or type(error).__name__,
            remedy=_REPAIRABLE[errno.EACCES] if denied else "",
            repairable=denied or isinstance(error, FileNotFoundError),
        )
    return StoreProblem(
        reason=os.strerror(number),
        remedy={**_PERMANENT, **_REPAIRABLE, **_REMEDIES}.get(number, ""),
        permanent=number in _PERMANENT,
        repairable=number in _REPAIRABLE,
        outage=number not in _IN_THE_WAY,
    )


_LACKS_OPERATION = "The file system lacks an operation that the sink needs; choose another file system"
_PERMANENT = {
    errno.ENAMETOOLONG: "Shorten topic_prefix or the path of the sink",
    errno.EXDEV: "Keep all directories below the root on one file system",
    errno.EINVAL: "The file system does not accept such a file; choose another file system",
    errno.EILSEQ: "The file system does not accept such a name; choose another file system",
    errno.EFBIG: "Lower file_size",
    errno.ENOTSUP: _LACKS_OPERATION,
    errno.ENOSYS: _LACKS_OPERATION,
}
_REPAIRABLE = {
    errno.EROFS: "Mount the file system writable",
    errno.EACCES: "Grant this process's user write permission for the directory",
    errno.EPERM: "Grant this process's user write permission for the directory",
}
_IN_THE_WAY = {
    errno.ENOTDIR: "Remove the file where the sink needs a directory",
    errno.EISDIR: "Remove the directory where the sink needs a file",
}
_REMEDIES = {
    **_IN_THE_WAY,
    errno.ENOSPC: "Free some space there",
    errno.EDQUOT: "Free some space there or raise the quota",
    errno.ENOENT: "A directory of the sink was removed during the write",
}
