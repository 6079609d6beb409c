"""The log of Spark's JVM and the Python workers, and its rotation."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

LIMIT_BYTES = 16 * 1024 * 1024
_LAST_BYTES = 20_000
_LAST_LINES = 5
_FRAMES = ("at ", "... ")


def open_log(path: Path) -> BinaryIO:
    """Return the file at *path*, to be closed by the caller, for what a new process prints. Only its owner may read it.

    It is opened for appending, which `keep_newest` relies on.
    """
    return open(path, "ab", opener=_private)


def keep_newest(path: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
    """Rotate the log at *path* when it has more than *limit_bytes*: its content moves to `PATH.1`.

    The processes that print keep the file open, so it is copied and then emptied in place. They continue at its new
    end, because `open_log` opened it for appending. Output between the copy's last byte and the emptying is lost: some
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


def last_words(path: Path) -> str:
    """Return the last lines of the log at *path* in one line, without the frames of Java's stack traces. Not masked.

    Empty when it has none, or cannot be read.
    """
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _LAST_BYTES))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith(_FRAMES)]
    return " | ".join(lines[-_LAST_LINES:])


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
