"""A changefeed into files, looked at through its files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.feed import Arrival, Feed


class FileFeed(Feed):
    """Writes JSON files under *directory*/out."""

    def __init__(
        self, directory: Path, uri: str, *, options: Mapping[str, Any] | None = None, query: str | None = None
    ) -> None:
        self.output = directory / "out"
        self._since = 0.0
        super().__init__(directory, uri, sink=f"file://{self.output.absolute()}", options=options, query=query)

    def data_files(self) -> list[Path]:
        """Return the visible data files, by name."""
        return sorted(self.output.glob("**/*.ndjson"))

    def look_before(self) -> None:
        self._since = time.time()

    def first_arrival(self) -> Arrival | None:
        """Return when the first data file became visible, and its rows."""
        new = [path for path in self.data_files() if path.stat().st_mtime >= self._since]
        if not new:
            return None
        first = min(new, key=lambda path: path.stat().st_ctime_ns)
        return Arrival(at=first.stat().st_ctime, rows=first.read_bytes().count(b"\n"))
