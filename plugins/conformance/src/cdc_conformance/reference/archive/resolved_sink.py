"""The resolved marks of an archive, and the list of files that each covers."""

from __future__ import annotations

import json

from cdc_conformance.reference.archive.directory import ArchiveDirectory
from cdc_core import Covered, ResolvedSink, SinkContext, TerminalSinkError, Timestamp

__all__ = ["ArchiveResolvedSink"]


class ArchiveResolvedSink(ResolvedSink):
    """Writes two files for each mark: the list of what it covers, and the mark itself."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self.directory = ArchiveDirectory(context.uri)
        self._closed = False

    def record(self, covered: Covered) -> None:
        self.require_open()
        previous = None if covered.previous is None else str(covered.previous)
        content = {"previous": previous, "files": list(covered.delivered)}
        self.directory.write(f"marks/{covered.mark}.json", json.dumps(content).encode())

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.require_open()
        self.directory.write(f"marks/{timestamp}.resolved", self.context.encoder.encode_resolved("", timestamp))

    def close(self) -> None:
        self._closed = True

    def require_open(self) -> None:
        if self._closed:
            raise TerminalSinkError("the archive is closed; open another one")
