"""Manifests: JSON lines that list the files of one changefeed that a resolved mark covers.

The first line is the header. Each other line describes one file, in the order of the rows of each key. The header names
the previous mark, so the manifests form a chain, and a reader notices when a manifest is missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdc_core import Covered, StoredFile, TableName, Timestamp
from cdc_sink_cloudstorage.open_file import OpenFile

_VERSION = 1
_ALGORITHM = "sha256"


def file_entry(file: OpenFile, path: str, *, format_: str, schema_path: str) -> dict[str, Any]:
    """Return the manifest line of the finished *file* at *path*."""
    name = file.schema.name
    return {
        "path": path,
        "database": name.database,
        "schema": name.schema,
        "table": name.table,
        "topic": file.topic,
        "format": format_,
        "schema_version": file.schema.version,
        "schema_path": schema_path,
        "rows": file.messages,
        "bytes": file.nbytes,
        "checksum": f"{_ALGORITHM}:{file.sha256}",
        "lower": str(file.lower or Timestamp()),
        "upper": str(file.upper),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One manifest. `previous` and `latest` are those of `cdc_core.Covered`."""

    changefeed: str
    feed_id: str
    mark: Timestamp
    previous: Timestamp | None
    latest: Timestamp
    files: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, covered: Covered, *, changefeed: str, feed_id: str) -> Manifest:
        return cls(
            changefeed=changefeed,
            feed_id=feed_id,
            mark=covered.mark,
            previous=covered.previous,
            latest=covered.latest,
            files=covered.delivered,
        )

    def to_bytes(self) -> bytes:
        header = {
            "manifest": _VERSION,
            "changefeed": self.changefeed,
            "id": self.feed_id,
            "mark": str(self.mark),
            "previous": None if self.previous is None else str(self.previous),
            "latest": str(self.latest),
            "files": len(self.files),
            "rows": sum(file["rows"] for file in self.files),
            "bytes": sum(file["bytes"] for file in self.files),
        }
        return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in (header, *self.files))

    @classmethod
    def from_bytes(cls, body: bytes) -> Manifest:
        """Return what `to_bytes` wrote. Raises: ValueError when *body* is not a whole manifest of a known version."""
        try:
            header, *files = [json.loads(line) for line in body.splitlines()]
            if header["manifest"] != _VERSION:
                found = header["manifest"]
                raise ValueError(f"it has version {found}, not {_VERSION}; upgrade cdc-sink-cloudstorage")
            if len(files) != header["files"]:
                raise ValueError(f"it lists {len(files)} of {header['files']} files")
            previous = header["previous"]
            return cls(
                changefeed=header["changefeed"],
                feed_id=header["id"],
                mark=Timestamp.parse(header["mark"]),
                previous=None if previous is None else Timestamp.parse(previous),
                latest=Timestamp.parse(header["latest"]),
                files=tuple(files),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"it is not a manifest ({type(error).__name__}: {error})") from None

    def stored_files(self) -> list[StoredFile]:
        """Return the files, in order. Raises: ValueError when a line does not describe a file."""
        try:
            return [
                StoredFile(
                    path=file["path"],
                    table=TableName(file["database"], file["schema"], file["table"]),
                    topic=file["topic"],
                    schema_version=file["schema_version"],
                    schema_path=file["schema_path"],
                    format=file["format"],
                    rows=file["rows"],
                    bytes=file["bytes"],
                    checksum=file["checksum"],
                    lower=Timestamp.parse(file["lower"]),
                    upper=Timestamp.parse(file["upper"]),
                    mark=self.mark,
                )
                for file in self.files
            ]
        except (KeyError, TypeError) as error:
            raise ValueError(f"a line does not describe a file ({type(error).__name__}: {error})") from None
