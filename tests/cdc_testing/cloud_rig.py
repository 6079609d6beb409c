"""The parts of the cloud storage sink at a directory or another place, and what a reader of names sees there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from cdc_conformance import rows as samples
from cdc_sink_cloudstorage.destination import CloudStorageDestination
from cdc_sink_cloudstorage.names import DataFile, parse_name
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.resolved_sink import CloudStorageResolvedSink
from cdc_sink_cloudstorage.schema_file import SCHEMAS
from cdc_sink_cloudstorage.sink import CloudStorageSink

from cdc_core import (
    Destination,
    Encoder,
    EncoderContext,
    Envelope,
    MessageBatch,
    ResolvedSink,
    RowBatch,
    Sink,
    SinkContext,
    SliceInfo,
    TableName,
    Timestamp,
    parse_options,
)

Part = TypeVar("Part", bound=Sink | ResolvedSink | Destination)
Options = Mapping[str, Any] | None

START = Timestamp(1_585_861_087_210_714_000)  # 2020-04-02 20:58:07.210714 UTC


class LineEncoder(Encoder):
    """Writes each row as a JSON array: topic, key, schema version, wall time."""

    file_extension = ".lines"

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        keys = rows.column("key").field("id").to_pylist()
        walls = rows.column("updated").field("wall").to_pylist()
        first, version = json.dumps(topic), rows.schema.version
        lines = [f"[{first}, {key}, {version}, {wall}]".encode() for key, wall in zip(keys, walls, strict=True)]
        return MessageBatch(
            topic=topic,
            key=pa.array([b""] * len(rows), pa.binary()),
            value=pa.array(lines, pa.binary()),
            updated=rows.column("updated"),
        )

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        assert topic == ""
        return f'{{"resolved":"{timestamp}"}}'.encode()


def rows(
    keys: Sequence[int], *, table: str = "orders", schema: str = "public", version: int = 1, wall: int = START.wall
) -> RowBatch:
    """Return inserts of *keys*, all at *wall*."""
    shape = samples.table(table, {"id": samples.INT8})
    shape = replace(shape, name=TableName("shop", schema, table), version=version)
    return samples.rows(shape, [samples.Change({"id": key}, updated=Timestamp(wall)) for key in keys])


def slice_of(step: int = 0, index: int = 0, lower: Timestamp = START) -> SliceInfo:
    return SliceInfo(step=step, index=index, lower=lower)


class CloudRig:
    """Opens parts of the sink; *opened* closes them.

    Each takes options, and in keywords other fields of its `SinkContext`. Their place is `root`, if no other is given.
    """

    def __init__(self, root: Path, opened: ExitStack) -> None:
        self.root = root
        self._opened = opened

    def context(self, options: Options = None, /, **changes: Any) -> SinkContext:
        parsed = parse_options(CloudStorageOptions, options or {}, owner="sink 'cloudstorage'")
        fields: dict[str, Any] = {
            "changefeed": "feed",
            "epoch": 7,
            "uri": f"file://{self.root}",
            "options": parsed,
            "encoder": LineEncoder(EncoderContext(changefeed="feed", envelope=Envelope(), options=None)),
            "compression": parsed.compression,
        }
        return SinkContext(**(fields | changes))

    def sink(self, options: Options = None, /, **changes: Any) -> CloudStorageSink:
        return self._open(CloudStorageSink, options, changes)

    def resolved_sink(self, options: Options = None, /, **changes: Any) -> CloudStorageResolvedSink:
        return self._open(CloudStorageResolvedSink, options, changes)

    def destination(self, options: Options = None, /, **changes: Any) -> CloudStorageDestination:
        return self._open(CloudStorageDestination, options, changes)

    def visible(self) -> list[str]:
        """Return the paths of the files that a reader of names sees, in order: whole ones, no schemas or manifests."""
        paths = [path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file()]
        hidden = (".inprogress", SCHEMAS)
        return sorted(
            path.as_posix() for path in paths if path.parts[0] not in hidden and ".MANIFEST." not in path.name
        )

    def data_files(self) -> list[DataFile]:
        """Return the names of all visible data files, in order."""
        return [name for path in self.visible() if isinstance(name := parse_name(path), DataFile)]

    def _open(self, part: type[Part], options: Options, changes: Mapping[str, Any]) -> Part:
        if not issubclass(part, Destination):
            self.destination(options, **changes).prepare()
        return self._opened.enter_context(closing(part(self.context(options, **changes))))
