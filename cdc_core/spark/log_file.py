"""The log of Spark's JVM and the Python workers, and its rotation."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["LIMIT_BYTES", "keep_newest", "output_to"]

LIMIT_BYTES = 16 * 1024 * 1024


@contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Give processes that start inside the block *path* as their standard output and error."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(file, 1)
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for descriptor in (file, *saved):
            os.close(descriptor)


def keep_newest(path: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
    """Rotate the log at *path* when it has more than *limit_bytes*: its content moves to `PATH.1`.

    The processes that print keep the file open, so it is copied and then emptied in place. They continue at its new
    end, because `output_to` opened it for appending. Output between the copy's last byte and the emptying is lost: some
    microseconds every 16 MB. An error is ignored: the log is no reason to fail.
    """
    with suppress(OSError):
        if path.stat().st_size <= limit_bytes:
            return
        older, copy = path.with_name(f"{path.name}.1"), path.with_name(f"{path.name}.new")
        with path.open("r+b") as log, open(copy, "wb", opener=_private) as kept:
            shutil.copyfileobj(log, kept)
            log.truncate(0)
        copy.replace(older)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
