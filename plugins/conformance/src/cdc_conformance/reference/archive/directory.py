"""The directory that an archive writes to."""

from __future__ import annotations

import os
from pathlib import Path

from cdc_core import ConfigError, RetryableSinkError

__all__ = ["ArchiveDirectory"]


class ArchiveDirectory:
    """Files of an archive, by their path below `root`."""

    def __init__(self, uri: str) -> None:
        path = uri.partition("://")[2]
        if not path.startswith("/"):
            raise ConfigError("the archive is a local directory; write archive:///path")
        self.root = Path(path)

    def write(self, name: str, content: bytes) -> None:
        """Return when the file is complete. Raises: RetryableSinkError."""
        path = self.root / name
        try:
            hidden = path.with_name(f".{path.name}.{os.getpid()}")
            hidden.write_bytes(content)
            hidden.replace(path)
        except OSError as error:
            raise RetryableSinkError(f"cannot write {path}: {os.strerror(error.errno or 0)}") from error
