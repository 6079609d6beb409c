"""The journal of reads: which executor was served which span by which node."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cdc_core import Locality, Span, Timestamp

__all__ = ["Served", "record_served", "served"]

_NAME = "served.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A reader on the executor `executor` of `host`, at `locality`, was served a span by `node`.

    Rows later than `after` and up to `upto`; of a scan, `after` is None and the rows are as of `upto`. `wanted` is
    where the planner placed the slice.
    """

    feed: str
    executor: str
    host: str
    locality: Locality
    wanted: Locality
    span: Span
    after: Timestamp | None
    upto: Timestamp
    node: int
    node_locality: Locality


def record_served(directory: Path, entry: Served) -> None:
    """Append *entry* in one write, so that several processes may."""
    value = asdict(entry) | {
        "span": entry.span.to_json(),
        "after": None if entry.after is None else str(entry.after),
        "upto": str(entry.upto),
        **{name: str(getattr(entry, name)) for name in ("locality", "wanted", "node_locality")},
    }
    file = os.open(directory / _NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(file, json.dumps(value, separators=(",", ":")).encode() + b"\n")
    finally:
        os.close(file)


def served(directory: Path) -> Iterator[Served]:
    """Yield the entries of *directory* in the order of their writing."""
    path = directory / _NAME
    for line in path.read_text().splitlines() if path.exists() else ():
        value = json.loads(line)
        yield Served(
            **value
            | {
                "span": Span.from_json(value["span"]),
                "after": None if value["after"] is None else Timestamp.parse(value["after"]),
                "upto": Timestamp.parse(value["upto"]),
                **{name: Locality.parse(value[name]) for name in ("locality", "wanted", "node_locality")},
            }
        )
