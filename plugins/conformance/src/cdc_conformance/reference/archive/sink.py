"""The files of an archive."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from cdc_conformance.reference.archive.directory import ArchiveDirectory
from cdc_conformance.reference.archive.options import ArchiveOptions
from cdc_core import Flushed, RowBatch, Sink, SinkContext, SliceInfo, TerminalSinkError, Timestamp

__all__ = ["ArchiveSink"]


class ArchiveSink(Sink):
    """Writes each batch to a new file at once. A file counts when `ArchiveResolvedSink.record` has listed it."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self.options: ArchiveOptions = context.options
        self.directory = ArchiveDirectory(context.uri)
        self.entries: list[Mapping[str, Any]] = []
        self.prefix = ""
        self.count = 0
        self._closed = False

    def begin(self, slice_: SliceInfo) -> None:
        self.prefix = f"{slice_.lower}-{self.epoch_of(slice_):08x}-{slice_.step:08x}-{slice_.index:04x}"
        self.count = 0

    def emit(self, rows: RowBatch) -> None:
        self.require_open()
        if len(rows) == 0:
            return
        topic = self.context.topics().of(rows.schema.name)
        body = self.context.encoder.open_body(topic)
        content = bytes(body.write(rows)) + bytes(body.finish())
        name = f"{self.prefix}-{self.count:08x}-{quote(topic, safe='')}.data"
        self.directory.write(name, content)
        self.entries.append(self.entry(rows, topic, name, content))
        self.count += 1

    def flush(self) -> Flushed:
        self.require_open()
        entries, self.entries = self.entries, []
        return Flushed(
            messages=sum(entry["rows"] for entry in entries),
            bytes=sum(entry["bytes"] for entry in entries),
            files=len(entries),
            delivered=tuple(entries),
        )

    def close(self) -> None:
        self._closed = True

    def epoch_of(self, slice_: SliceInfo) -> int:
        """Return the epoch that names the files of a slice: that of the attempt which planned it."""
        return self.context.epoch if slice_.planned_by is None else slice_.planned_by

    def entry(self, rows: RowBatch, topic: str, name: str, content: bytes) -> dict[str, Any]:
        """Return what a reader of the history must know about a file."""
        times = sorted(Timestamp(**time) for time in rows.column("updated").to_pylist())
        return {
            "path": name,
            "table": [rows.schema.name.database, rows.schema.name.schema, rows.schema.name.table],
            "topic": topic,
            "version": rows.schema.version,
            "shape": self.write_shape(rows, topic),
            "rows": len(rows),
            "bytes": len(content),
            "checksum": f"sha256:{hashlib.sha256(content).hexdigest()}",
            "lower": str(times[0]),
            "upper": str(times[-1]),
        }

    def write_shape(self, rows: RowBatch, topic: str) -> str:
        """Write how to decode files of these rows, and return the path of that."""
        path = f"shapes/{quote(topic, safe='')}-{rows.schema.version}.json"
        content = {
            "schema": rows.schema.to_json(),
            "format": self.context.format,
            "envelope": self.context.encoder.context.envelope.to_json(),
        }
        self.directory.write(path, json.dumps(content).encode())
        return path

    def require_open(self) -> None:
        if self._closed:
            raise TerminalSinkError("the archive is closed; open another one")
