"""What the driver asks of an archive before a run."""

from __future__ import annotations

from pathlib import Path

from cdc_conformance.reference.archive.directory import ArchiveDirectory
from cdc_core import ConfigError, Destination

__all__ = ["ArchiveDestination"]


class ArchiveDestination(Destination):
    """Needs a directory in which the archive's own directory can be created."""

    def check(self) -> None:
        root = ArchiveDirectory(self.context.uri).root
        if not root.parent.is_dir():
            raise ConfigError(f"cannot use {root}: the directory {root.parent} does not exist; create it")

    def local_directory(self) -> Path:
        return ArchiveDirectory(self.context.uri).root

    def prepare(self) -> None:
        root = ArchiveDirectory(self.context.uri).root
        for name in ("", "shapes", "marks"):
            (root / name).mkdir(exist_ok=True)
