"""Does what arrived make up the database? Replays a directory of JSON files and compares the result with the tables."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import zstandard
from cdc_sink_cloudstorage.names import DataFile, ResolvedFile, parse_name

from cdc_core import Timestamp
from cdc_rangefeed_postgres.demo.comparison import Audit, compare
from cdc_rangefeed_postgres.demo.replay import Replay

__all__ = ["Audit", "Replay", "audit", "replay"]

_PARTITION = "files"
"""Their names are in the order of all rows and marks, so all of them are one partition."""


def replay(directory: Path) -> Replay:
    """Return what the files below *directory* make up, read in lexicographic order of their paths."""
    result = Replay()
    for path in sorted(directory.rglob("*"), key=lambda path: str(path.relative_to(directory))):
        name = parse_name(str(path))
        if isinstance(name, ResolvedFile):
            result.note_resolved(_PARTITION, name.timestamp)
        elif isinstance(name, DataFile):
            for line in _lines(path):
                message = json.loads(line)
                result.note_row(
                    _PARTITION,
                    name.topic,
                    key=json.dumps(message["key"]),
                    row=None if message["after"] is None else line,
                    updated=Timestamp.parse(message["updated"]),
                )
    return result


def audit(directory: Path, uri: str, tables: Sequence[str]) -> Audit:
    """Compare the files below *directory* with the *tables* (schema public, by name) of the database at *uri*.

    Means something only when nothing was committed after the last resolved mark.
    """
    return compare(replay(directory), uri, tables)


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as raw:
        stream: Any = raw
        if path.suffix == ".gz":
            stream = gzip.GzipFile(fileobj=raw)
        elif path.suffix == ".zst":
            stream = io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw))
        yield from stream
