"""PostgreSQL servers of a test's own, without the seconds that `initdb` takes."""

from __future__ import annotations

import atexit
import shutil
import subprocess
from pathlib import Path

from cdc_rangefeed_postgres.demo import account
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres

__all__ = ["CopiedPostgres"]

_initialised: dict[Path, Path] = {}
"""By binaries, a directory in which this process has run `initdb`."""


class CopiedPostgres(EmbeddedPostgres):
    """A server whose first start copies an empty one of this process, with the password and the system identifier."""

    def _initialise(self) -> None:
        if self.binaries not in _initialised:
            directory = account.temporary_directory()
            atexit.register(shutil.rmtree, directory, ignore_errors=True)
            EmbeddedPostgres(directory, binaries=self.binaries)._initialise()
            _initialised[self.binaries] = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", "--reflink=auto", f"{_initialised[self.binaries]}/.", self.directory], check=True)
