"""The messages in the JSON files of a changefeed, as they are written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cdc_core import Timestamp

__all__ = ["Row", "delivered", "later"]

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
