"""A sink that keeps a history: a file for each batch, and for each resolved mark a list of the files that it covers.

<root>/<lower>-<epoch>-<step>-<slice>-<count>-<topic>.data    a body of the encoder's
<root>/shapes/<topic>-<version>.json                          how files of one version of a table are read
<root>/marks/<mark>.json                                      the mark before, and the files in order
<root>/marks/<mark>.resolved                                  the mark, for consumers that see files alone
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cdc_core import (
    ConfigError,
    Flushed,
    RetryableSinkError,
    RowBatch,
    Sink,
    SinkContext,
    SinkRegistration,
    SliceInfo,
    TableName,
    TerminalSinkError,
    Timestamp,
)
from cdc_core.options import option
from cdc_core.sink import Covered

__all__ = ["ARCHIVE", "Archive", "ArchiveOptions", "place_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """Options of the archive."""

    password: str | None = option(None, doc="Shown to nobody, and asked for by nothing.", secret=True)


class Archive(Sink):
    """Writes each batch to a file of its own at once. A file counts when `record` has named it."""

    refuses_rows = False
    records = True

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self.options: ArchiveOptions = context.options
        self.root = place_of(context.uri)
        self.entries: list[Mapping[str, Any]] = []
        self.messages = 0
        self.count = 0
        self._slice: SliceInfo | None = None
        self._closed = False

    def check(self) -> None:
        if not self.root.parent.is_dir():
            raise ConfigError(f"{self.root} cannot be used: there is no directory {self.root.parent}; make it")

    def topic(self, table: TableName) -> str:
        return self.context.topics().of(table)

    def prepare(self) -> None:
        for name in ("", "shapes", "marks"):
            (self.root / name).mkdir(exist_ok=True)

    def begin(self, slice_: SliceInfo) -> None:
        self.require_open()
        self.forget()
        self._slice, self.count = slice_, 0

    def emit(self, rows: RowBatch) -> None:
        self.require_open()
        if self._slice is None:
            raise TerminalSinkError("the archive was given rows before begin; call begin first")
        if len(rows) == 0:
            return
        topic = self.topic(rows.schema.name)
        body = self.context.encoder.open_body(topic)
        content = bytes(body.write(rows)) + bytes(body.finish())
        name = f"{self.prefix(self._slice)}-{self.count:08x}-{quote(topic, safe='')}.data"
        self.write(name, content)
        self.entries.append(self.entry(rows, topic, name, content))
        self.count += 1
        self.messages += len(rows)

    def flush(self) -> Flushed:
        self.require_open()
        nbytes = sum(entry["bytes"] for entry in self.entries)
        flushed = Flushed(messages=self.messages, bytes=nbytes, files=len(self.entries), delivered=tuple(self.entries))
        self.forget()
        return flushed

    def record(self, covered: Covered) -> None:
        self.require_open()
        previous = None if covered.previous is None else str(covered.previous)
        content = {"previous": previous, "files": list(covered.delivered)}
        self.write(f"marks/{covered.mark}.json", json.dumps(content).encode())

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.require_open()
        self.write(f"marks/{timestamp}.resolved", self.context.encoder.encode_resolved("", timestamp))

    def close(self) -> None:
        self.forget()
        self._closed = True

    def prefix(self, slice_: SliceInfo) -> str:
        """Return what files of a slice are called by, whichever run writes them."""
        epoch = self.context.epoch if slice_.planned_by is None else slice_.planned_by
        return f"{slice_.lower}-{epoch:08x}-{slice_.step:08x}-{slice_.index:04x}"

    def entry(self, rows: RowBatch, topic: str, name: str, content: bytes) -> dict[str, Any]:
        """Return what is to be known of a file."""
        times = sorted(Timestamp(**time) for time in rows.column("updated").to_pylist())
        return {
            "path": name,
            "table": [rows.schema.name.database, rows.schema.name.schema, rows.schema.name.table],
            "topic": topic,
            "version": rows.schema.version,
            "shape": self.shape(rows, topic),
            "rows": len(rows),
            "bytes": len(content),
            "checksum": f"sha256:{hashlib.sha256(content).hexdigest()}",
            "lower": str(times[0]),
            "upper": str(times[-1]),
        }

    def shape(self, rows: RowBatch, topic: str) -> str:
        """Return the path of what says how files of these rows are read, which is there."""
        path = f"shapes/{quote(topic, safe='')}-{rows.schema.version}.json"
        content = {
            "schema": rows.schema.to_json(),
            "format": self.context.format,
            "envelope": dataclasses.asdict(self.context.encoder.context.envelope),
        }
        self.write(path, json.dumps(content).encode())
        return path

    def write(self, name: str, content: bytes) -> None:
        """Return when a file is there, whole."""
        path = self.root / name
        try:
            hidden = path.with_name(f".{path.name}.{os.getpid()}")
            hidden.write_bytes(content)
            hidden.replace(path)
        except OSError as error:
            raise RetryableSinkError(f"{path} cannot be written: {os.strerror(error.errno or 0)}") from error

    def require_open(self) -> None:
        if self._closed:
            raise TerminalSinkError("the archive is closed; open another")

    def forget(self) -> None:
        self.entries, self.messages = [], 0


def place_of(uri: str) -> Path:
    """Return the directory that *uri* names. Raises: ConfigError when it has more than a path."""
    path = uri.partition("://")[2]
    if not path.startswith("/"):
        raise ConfigError("the archive is a directory of this machine; write archive:///path")
    return Path(path)


ARCHIVE = SinkRegistration(
    name="archive",
    target=f"{__name__}:Archive",
    options=f"{__name__}:ArchiveOptions",
    history="cdc_conformance.reference.history:ArchiveHistory",
    schemes=("archive",),
    output="files",
    forced=frozenset({"updated", "key_in_value"}),
    envelopes=frozenset({"wrapped", "bare"}),
    summary="Files with a list of them for each mark, for the conformance kit's own tests",
)
