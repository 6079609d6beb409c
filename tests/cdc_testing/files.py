"""Reads a directory of changefeed files as a consumer would, in lexicographic order: into validators, or as written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from cdc_conformance.validators import Arrived, Validator, validate
from cdc_encoder_json.encoder import JsonEncoder
from cdc_sink_cloudstorage.names import ResolvedFile, parse_name
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.reader import CloudStorageReader
from cdc_testing.decoders import KEYED, json_decoder

from cdc_core import SinkContext, Timestamp


def paths_in_order(directory: Path) -> list[Path]:
    """Return the files below *directory* in the order in which consumers must read them."""
    found = [path for path in directory.rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: str(path.relative_to(directory)))


def validate_files(directory: Path, topics: Iterable[str], validators: Iterable[Validator]) -> Arrived:
    """Pass the rows of all JSON files to *validators*, and return how many rows and resolved marks there were."""
    decoder = json_decoder(output="files")
    context = SinkContext(
        changefeed="test",
        epoch=1,
        uri=f"file://{directory}",
        options=CloudStorageOptions(),
        encoder=JsonEncoder(decoder.context),
    )
    with closing(CloudStorageReader(context)) as reader:
        return validate(reader.read(), decoder, dict.fromkeys(topics, KEYED), validators)


def last_resolved(directory: Path) -> Timestamp:
    """Return the greatest resolved mark below *directory*, or zero when there is none."""
    names = (parse_name(path.name) for path in directory.rglob("*.RESOLVED"))
    return max((name.timestamp for name in names if isinstance(name, ResolvedFile)), default=Timestamp())


Row = dict[str, Any]


def delivered(files: Path, table: str) -> list[Row]:
    """Return every message about *table* below the directory *files*, in the order of readers by name."""
    rows = []
    for path in sorted(files.rglob(f"*-{table}-*.ndjson")):
        rows += [json.loads(line) for line in path.read_text().splitlines()]
    return rows


def later(rows: Sequence[Row], than: Timestamp | None) -> set[int]:
    """Return the first column of the key of each row that is later than *than*."""
    assert than is not None
    return {row["key"][0] for row in rows if row["updated"] > str(than)}
