"""A sink that keeps a history: a file for each batch, and for each resolved mark a list of the files that it covers.

<root>/<lower>-<epoch>-<step>-<slice>-<count>-<topic>.data    one batch, as the encoder writes it
<root>/shapes/<topic>-<version>.json                          how to decode files of one version of a table
<root>/marks/<mark>.json                                      the previous mark, and the files in order
<root>/marks/<mark>.resolved                                  the mark, for consumers that see files only
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cdc_conformance.reference.sink import Closable
from cdc_core import (
    ConfigError,
    Covered,
    Destination,
    Envelope,
    FileShape,
    Flushed,
    HistoryLostError,
    ResolvedSink,
    RetryableSinkError,
    RowBatch,
    Sink,
    SinkContext,
    SinkRegistration,
    SliceInfo,
    StoredFile,
    StoredHistory,
    TableName,
    TableSchema,
    Timestamp,
    option,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """Options of the archive."""

    password: str | None = option(None, doc="Not used. Tests check that it is never shown.", secret=True)


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


class ArchiveSink(Closable, Sink):
    """Writes each batch to a new file at once. A file counts when `ArchiveResolvedSink.record` has listed it."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self.options: ArchiveOptions = context.options
        self.directory = ArchiveDirectory(context.uri)
        self.entries: list[Mapping[str, Any]] = []
        self.prefix = ""
        self.count = 0

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


class ArchiveResolvedSink(Closable, ResolvedSink):
    """Writes two files for each mark: the list of what it covers, and the mark itself."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self.directory = ArchiveDirectory(context.uri)

    def record(self, covered: Covered) -> None:
        self.require_open()
        previous = None if covered.previous is None else str(covered.previous)
        content = {"previous": previous, "files": list(covered.delivered)}
        self.directory.write(f"marks/{covered.mark}.json", json.dumps(content).encode())

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.require_open()
        self.directory.write(f"marks/{timestamp}.resolved", self.context.encoder.encode_resolved("", timestamp))


class ArchiveHistory(StoredHistory):
    """Follows the lists of the marks. Each names the previous mark."""

    def changefeeds(self) -> Sequence[str]:
        return ["archive.000000000000"]

    def marks(self) -> Sequence[Timestamp]:
        found = sorted(Timestamp.parse(path.stem) for path in (self.root / "marks").glob("*.json"))
        if not found:
            raise ConfigError(f"there is no resolved mark in {self.root}; set the option resolved")
        return found

    def files(self, *, upto: Timestamp, after: Timestamp = Timestamp()) -> Iterator[StoredFile]:
        for mark in self.chain(upto, after):
            for entry in self.listed(mark)["files"]:
                file = self.stored_file(entry, mark)
                if max(file.upper, file.mark) > after and file.lower <= upto:
                    yield file

    def shape(self, file: StoredFile) -> FileShape:
        content = json.loads(self.content(file.schema_path))
        return FileShape(
            schema=TableSchema.from_json(content["schema"]),
            format=content["format"],
            envelope=Envelope.from_json(content["envelope"]),
            options={},
        )

    def body(self, file: StoredFile) -> bytes:
        content = self.content(file.path)
        if self.checksum(content) != file.checksum:
            raise HistoryLostError(f"{self.root / file.path} is damaged: its checksum is not the recorded one")
        return content

    def close(self) -> None:
        """Nothing is open."""

    @property
    def root(self) -> Path:
        return ArchiveDirectory(self.uri).root

    def chain(self, upto: Timestamp, after: Timestamp) -> Sequence[Timestamp]:
        """Return every mark up to *upto* in order. Raises: HistoryLostError when one is missing.

        Marks up to *after* count too: a file may hold rows above its own mark.
        """
        del after
        there = set(self.marks())
        chain = [upto]
        while (previous := self.previous(chain[-1])) != Timestamp():
            if previous not in there:
                raise HistoryLostError(f"{self.root}: the record of the mark before {chain[-1]} is missing")
            chain.append(previous)
        return chain[::-1]

    def previous(self, mark: Timestamp) -> Timestamp | None:
        """Return the mark before *mark*, or None when rows were delivered in between without a record."""
        text = self.listed(mark)["previous"]
        return None if text is None else Timestamp.parse(text)

    def listed(self, mark: Timestamp) -> Any:
        return json.loads(self.content(f"marks/{mark}.json"))

    def content(self, name: str) -> bytes:
        try:
            return (self.root / name).read_bytes()
        except OSError as error:
            raise HistoryLostError(f"{self.root / name} is missing") from error

    def checksum(self, content: bytes) -> str:
        return f"sha256:{hashlib.sha256(content).hexdigest()}"

    def stored_file(self, entry: Any, mark: Timestamp) -> StoredFile:
        return StoredFile(
            path=entry["path"],
            table=TableName(*entry["table"]),
            topic=entry["topic"],
            schema_version=entry["version"],
            schema_path=entry["shape"],
            format=json.loads(self.content(entry["shape"]))["format"],
            rows=entry["rows"],
            bytes=entry["bytes"],
            checksum=entry["checksum"],
            lower=Timestamp.parse(entry["lower"]),
            upper=Timestamp.parse(entry["upper"]),
            mark=mark,
        )


ARCHIVE = SinkRegistration(
    name="archive",
    schemes=("archive",),
    sink=f"{__name__}:ArchiveSink",
    resolved_sink=f"{__name__}:ArchiveResolvedSink",
    destination=f"{__name__}:ArchiveDestination",
    history=f"{__name__}:ArchiveHistory",
    options=f"{__name__}:ArchiveOptions",
    output="files",
    refuses_rows=False,
    records=True,
    forced=frozenset({"updated", "key_in_value"}),
    envelopes=frozenset({"wrapped", "bare"}),
    summary="Files, with a list of files for each resolved mark, for the conformance kit's own tests",
)
