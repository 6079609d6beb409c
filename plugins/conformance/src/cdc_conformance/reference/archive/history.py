"""The history that the archive keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cdc_conformance.reference.archive import place_of
from cdc_core import ConfigError, EnvelopeOptions, HistoryLostError, TableName, TableSchema, Timestamp
from cdc_core.stored_history import FileShape, StoredFile, StoredHistory

__all__ = ["ArchiveHistory"]


class ArchiveHistory(StoredHistory):
    """Follows the lists of the marks, each of which names the mark before it."""

    def changefeeds(self) -> Sequence[str]:
        return ["archive.000000000000"]

    def marks(self) -> Sequence[Timestamp]:
        found = sorted(Timestamp.parse(path.stem) for path in (self.root / "marks").glob("*.json"))
        if not found:
            raise ConfigError(f"there is no mark below {self.root}; set the option resolved")
        return found

    def files(self, *, upto: Timestamp, after: Timestamp = Timestamp()) -> Iterator[StoredFile]:
        for mark in self.chain(upto, after):
            for file in map(self.stored_file, self.listed(mark)["files"], [mark] * len(self.listed(mark)["files"])):
                if max(file.upper, file.mark) > after and file.lower <= upto:
                    yield file

    def shape(self, file: StoredFile) -> FileShape:
        content = json.loads(self.content(file.schema_path))
        return FileShape(
            schema=TableSchema.from_json(content["schema"]),
            format=content["format"],
            envelope=EnvelopeOptions(**content["envelope"]),
            options={},
        )

    def body(self, file: StoredFile) -> bytes:
        content = self.content(file.path)
        if self.checksum(content) != file.checksum:
            raise HistoryLostError(f"{self.root / file.path} is not what the mark {file.mark} covers")
        return content

    def close(self) -> None:
        """There is nothing to let go of."""

    @property
    def root(self) -> Path:
        return place_of(self.uri)

    def chain(self, upto: Timestamp, after: Timestamp) -> Sequence[Timestamp]:
        """Return the marks up to *upto*, from the first on whose files may hold rows above *after*, each in its place.

        A file may hold rows above its own mark, so all that were recorded count. Raises: HistoryLostError.
        """
        del after
        there = set(self.marks())
        chain = [upto]
        while (previous := self.previous(chain[-1])) != Timestamp():
            if previous not in there:
                raise HistoryLostError(f"below {self.root} the list of what came before the mark {chain[-1]} is gone")
            chain.append(previous)
        return chain[::-1]

    def previous(self, mark: Timestamp) -> Timestamp | None:
        """Return the mark before *mark*, None when something came in between that is in no list."""
        text = self.listed(mark)["previous"]
        return None if text is None else Timestamp.parse(text)

    def listed(self, mark: Timestamp) -> Any:
        return json.loads(self.content(f"marks/{mark}.json"))

    def content(self, name: str) -> bytes:
        try:
            return (self.root / name).read_bytes()
        except OSError as error:
            raise HistoryLostError(f"{self.root / name} is gone") from error

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
