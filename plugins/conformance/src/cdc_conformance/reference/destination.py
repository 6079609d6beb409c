"""What the driver asks of the reference sink before a run."""

from __future__ import annotations

from pathlib import Path

from cdc_conformance.reference.partitions import Partitions
from cdc_core import ConfigError, Destination, SinkContext

__all__ = ["ReferenceDestination"]


class ReferenceDestination(Destination):
    """Needs a directory, or a place where one can be created."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self.partitions = Partitions.of(context)

    def check(self) -> None:
        root = self.partitions.root
        nearest = next(path for path in (root, *root.parents) if path.exists())
        if not nearest.is_dir():
            raise ConfigError(f"cannot use {root}: {nearest} is not a directory; choose another one")

    def local_directory(self) -> Path:
        return self.partitions.root

    def prepare(self) -> None:
        self.partitions.create()
