"""A line encoder, rows, and the parts of a sink."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from cdc_conformance.rows import INT8, Change
from cdc_conformance.rows import rows as rows_of
from cdc_conformance.rows import table as table_of
from cdc_sink_cloudstorage.destination import CloudStorageDestination
from cdc_sink_cloudstorage.names import DataFile, parse_name
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.resolved_sink import CloudStorageResolvedSink
from cdc_sink_cloudstorage.schema_file import SCHEMAS
from cdc_sink_cloudstorage.sink import CloudStorageSink

from cdc_core import (
    Encoder,
    EncoderContext,
    Envelope,
    MessageBatch,
    RowBatch,
    SinkContext,
    SliceInfo,
    TableName,
    Timestamp,
    parse_options,
)

Part = TypeVar("Part", CloudStorageSink, CloudStorageResolvedSink, CloudStorageDestination)

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


def make_rows(
    keys: Sequence[int], *, table: str = "orders", schema: str = "public", version: int = 1, wall: int = START.wall
) -> RowBatch:
    """Return inserts of *keys*, all at *wall*."""
    name = TableName("shop", schema, table)
    shape = replace(table_of(table, {"id": INT8}), name=name, version=version)
    return rows_of(shape, [Change({"id": key}, updated=Timestamp(wall)) for key in keys])


@pytest.fixture
def rows() -> Callable[..., RowBatch]:
    return make_rows


@pytest.fixture
def start() -> Timestamp:
    return START


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def context(root: Path) -> Callable[..., SinkContext]:
    """Makes the context of a sink from its options, and from other fields of the context by keyword."""

    def make(options: dict[str, Any] | None = None, /, **changes: Any) -> SinkContext:
        parsed = parse_options(CloudStorageOptions, options or {}, owner="sink 'cloudstorage'")
        fields: dict[str, Any] = {
            "changefeed": "feed",
            "epoch": 7,
            "uri": f"file://{root}",
            "options": parsed,
            "encoder": LineEncoder(EncoderContext(changefeed="feed", envelope=Envelope(), options=None)),
            "compression": parsed.compression,
        }
        return SinkContext(**(fields | changes))

    return make


def _opener(part: type[Part], context: Callable[..., SinkContext]) -> Iterator[Callable[..., Part]]:
    opened: list[Part] = []

    def make(options: dict[str, Any] | None = None, /, **changes: Any) -> Part:
        opened.append(part(context(options, **changes)))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def open_sink(context: Callable[..., SinkContext]) -> Iterator[Callable[..., CloudStorageSink]]:
    """Makes a sink; arguments as for `context`. It is closed at the end of the test."""
    yield from _opener(CloudStorageSink, context)


@pytest.fixture
def open_resolved_sink(context: Callable[..., SinkContext]) -> Iterator[Callable[..., CloudStorageResolvedSink]]:
    """Makes a resolved sink, as `open_sink` does a sink."""
    yield from _opener(CloudStorageResolvedSink, context)


@pytest.fixture
def open_destination(context: Callable[..., SinkContext]) -> Iterator[Callable[..., CloudStorageDestination]]:
    """Makes a destination, as `open_sink` does a sink."""
    yield from _opener(CloudStorageDestination, context)


@pytest.fixture
def slice_of() -> Callable[..., SliceInfo]:
    def make(step: int = 0, index: int = 0, lower: Timestamp = START) -> SliceInfo:
        return SliceInfo(step=step, index=index, lower=lower)

    return make


@pytest.fixture
def visible(root: Path) -> Callable[[], list[str]]:
    """Lists the paths of all files that a reader of names sees, in order: no schemas, manifests or unfinished files."""

    def read() -> list[str]:
        paths = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
        hidden = (".inprogress", SCHEMAS)
        return sorted(
            path.as_posix() for path in paths if path.parts[0] not in hidden and ".MANIFEST." not in path.name
        )

    return read


@pytest.fixture
def data_files(visible: Callable[[], list[str]]) -> Callable[[], list[DataFile]]:
    """Parses the names of all visible data files, in order."""

    def read() -> list[DataFile]:
        return [name for path in visible() if isinstance(name := parse_name(path), DataFile)]

    return read
