"""Reads a directory of changefeed files as a consumer would: in lexicographic order, into validators."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cdc_conformance.validators import SeenMark, SeenRow, Validator
from cdc_sink_cloudstorage.names import DataFile, ResolvedFile, parse_name

from cdc_core import Timestamp

__all__ = ["last_resolved", "paths_in_order", "rows_in", "validate"]


def paths_in_order(directory: Path) -> list[Path]:
    """Return the files below *directory* in the order in which they must be read."""
    found = [path for path in directory.rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: str(path.relative_to(directory)))


def rows_in(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as lines:
        yield from map(json.loads, lines)


def validate(directory: Path, validators: Iterable[Validator]) -> tuple[int, int]:
    """Feed all files to *validators* and return how many rows and resolved marks there were."""
    rows = marks = 0
    for path in paths_in_order(directory):
        name = parse_name(str(path))
        if isinstance(name, ResolvedFile):
            marks += 1
            for validator in validators:
                validator.note_resolved(SeenMark(resolved=name.timestamp))
        elif isinstance(name, DataFile):
            for row in rows_in(path):
                rows += 1
                seen = SeenRow(
                    topic=name.topic,
                    key=tuple(row["key"]),
                    after=row["after"],
                    updated=Timestamp.parse(row["updated"]),
                )
                for validator in validators:
                    validator.note_row(seen)
    return rows, marks


def last_resolved(directory: Path) -> Timestamp:
    """Return the greatest resolved mark below *directory*, zero when there is none."""
    names = (parse_name(path.name) for path in directory.rglob("*.RESOLVED"))
    return max((name.timestamp for name in names if isinstance(name, ResolvedFile)), default=Timestamp())
