"""Which executor started this process, as Spark names it."""

from __future__ import annotations

import functools
import os
import socket
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ExecutorIdentity", "this_executor"]

_MOST_PARENTS = 4
"""A Python worker is a child of a daemon, which the executor's JVM started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorIdentity:
    """`id` is unique in the application and empty outside of an executor; `host` is the name that Spark uses."""

    id: str
    host: str


@functools.cache
def this_executor() -> ExecutorIdentity:
    """Return the executor that this process works for, by the arguments of the JVM above it."""
    process = os.getpid()
    try:
        for _ in range(_MOST_PARENTS):
            words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
            if "--executor-id" in words and "--hostname" in words:
                return ExecutorIdentity(id=_after("--executor-id", words), host=_after("--hostname", words))
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        pass  # no /proc, or the end of the line of parents
    return ExecutorIdentity(id="", host=socket.gethostname())


def _after(option: str, words: list[str]) -> str:
    return words[words.index(option) + 1]
