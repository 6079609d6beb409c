"""Audits a directory of JSON files: do its rows make up the tables of the database?

The files are read twice, as the two kinds of consumers read them. A consumer that reads by name, in lexicographic
order, may see repeats, and the order must be right. A consumer that reads by manifest, with `ChangeReader`, must see
every row once. Its rows, written as JSON again, must be equal to those of the first consumer, byte by byte.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import zstandard
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_sink_cloudstorage.names import DataFile, ResolvedFile, parse_name

from cdc_core import ChangeReader, ConfigError, EncoderContext, Timestamp
from cdc_rangefeed_postgres.demo.comparison import Audit, compare
from cdc_rangefeed_postgres.demo.replay import Replay

__all__ = ["Audit", "Replay", "audit", "replay", "replay_once"]

_PARTITION = "files"
"""The names of the files have the order of all rows and marks, so all files are one partition."""


def replay(directory: Path) -> Replay:
    """Return the tables that the files below *directory* make up, read in lexicographic order of their paths."""
    result = Replay()
    for path in sorted(directory.rglob("*"), key=lambda path: str(path.relative_to(directory))):
        name = parse_name(str(path))
        if isinstance(name, ResolvedFile):
            result.note_resolved(_PARTITION, name.timestamp)
        elif isinstance(name, DataFile):
            for line in _lines(path):
                _note(result, name.topic, line)
    return result


def replay_once(directory: Path) -> Replay:
    """Return the tables that the rows up to the newest mark make up, read by manifest and written as JSON again.

    Raises: ConfigError when there is no manifest; HistoryLostError when a file is missing or damaged.
    """
    result = Replay()
    with ChangeReader(f"file://{directory}") as reader:
        mark = reader.newest()
        for file in reader.files(upto=mark):
            envelope = reader.shape(file).envelope
            context = EncoderContext(changefeed="", envelope=envelope, options=JsonOptions(), output="files")
            body = JsonEncoder(context).open_body(file.topic)
            for line in bytes(body.write(reader.rows(file, upto=mark))).splitlines(keepends=True):
                _note(result, file.topic, line)
        result.note_resolved(_PARTITION, mark)
    return result


def audit(directory: Path, uri: str, tables: Sequence[str]) -> Audit:
    """Compare the files below *directory* with the *tables* (schema public, by name) of the database at *uri*.

    The result is only valid when nothing was committed after the last resolved mark.
    """
    by_name = replay(directory)
    found = compare(by_name, uri, tables)
    if not by_name.resolved:
        return found
    try:
        once = replay_once(directory)
    except ConfigError:  # no manifest
        return replace(found, not_once=found.rows)
    keys = {(topic, key) for view in (by_name, once) for topic, rows in view.tables.items() for key in rows}
    other = sum(_row(by_name, *key) != _row(once, *key) for key in keys)
    return replace(found, not_once=once.repeats + len(once.out_of_order) + other)


def _row(view: Replay, topic: str, key: str) -> tuple[Timestamp, bytes | None] | None:
    return view.tables.get(topic, {}).get(key)


def _note(result: Replay, topic: str, line: bytes) -> None:
    message = json.loads(line)
    result.note_row(
        _PARTITION,
        topic,
        key=json.dumps(message["key"]),
        row=None if message["after"] is None else line,
        updated=Timestamp.parse(message["updated"]),
    )


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as raw:
        stream: Any = raw
        if path.suffix == ".gz":
            stream = gzip.GzipFile(fileobj=raw)
        elif path.suffix == ".zst":
            stream = io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw))
        yield from stream
