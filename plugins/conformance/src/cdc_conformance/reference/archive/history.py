"""The history that an archive keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cdc_conformance.reference.archive.directory import ArchiveDirectory
from cdc_core import (
    ConfigError,
    Envelope,
    FileShape,
    HistoryLostError,
    StoredFile,
    StoredHistory,
    TableName,
    TableSchema,
    Timestamp,
)

__all__ = ["ArchiveHistory"]


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
