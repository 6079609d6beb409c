"""Disturbances of the reference sink's destination."""

from __future__ import annotations

import base64
import fcntl
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["DirectoryDisturbance"]


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
