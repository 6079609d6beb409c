"""Scans of the simulated database in chunks, and the predicates of rescans."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.source import Scan
from cdc_conformance.simulated.table import key_of
from cdc_core import ConfigError, Span, Timestamp

Predicate = Callable[[Mapping[str, Any]], bool]

_FORM = re.compile(r"\s*(\w+)\s*([=<>])\s*(.+?)\s*")
_COMPARE = {"=": operator.eq, "<": operator.lt, ">": operator.gt}


def parse(text: str) -> tuple[str, Predicate]:
    """Return the column that *text* names, and whether a row has such a value in it. Raises: ConfigError."""
    found = _FORM.fullmatch(text)
    try:
        value: Any = None if found is None else json.loads(found[3])
    except json.JSONDecodeError:
        found = None
    if found is None:
        raise ConfigError(
            f"'{text}' is not a predicate that the simulated database supports; write a predicate such as id < 5"
        )
    column, compare = found[1], _COMPARE[found[2]]

    def holds(row: Mapping[str, Any]) -> bool:
        return row.get(column) is not None and bool(compare(row[column], value))

    return column, holds


def begin(
    cluster: Cluster, spans: Sequence[Span], at: Timestamp, *, where: Mapping[str, Sequence[str]] | None = None
) -> Scan:
    """Return the scan of *spans* as of *at*; with the *where* of a rescan, see `Scan`."""
    total = sum(sum(1 for _ in cluster.rows(cluster.tables[span.table], at)) for span in spans)
    return Scan(at=at, left=tuple(spans), done=0, total=total, where=where)


def chunks(cluster: Cluster, spans: Sequence[Span], at: Timestamp, *, rows: int) -> Iterator[tuple[Span, int]]:
    """Yield *spans* in chunks of at most *rows* rows, each with its number of rows."""
    for span in spans:
        ids = [id_ for id_, _ in cluster.rows(cluster.tables[span.table], at)]
        for range_ in cluster.ranges[span.table]:
            left = span.overlap(range_.span)
            keys = [] if left is None else [key for key in map(key_of, ids) if left.overlap(point(left.table, key))]
            while left is not None:
                if len(keys) <= rows:
                    yield left, len(keys)
                    break
                yield Span(left.table, left.start, keys[rows]), rows
                left, keys = Span(left.table, keys[rows], left.end), keys[rows:]


def taken(cluster: Cluster, scan: Scan, *, rows: int, parts: int, chunk_rows: int) -> Scan | None:
    """Return *scan* without its first chunks, at most *parts* with about *rows* rows; None if nothing is left."""
    count, left = 0, scan.left
    chunk_rows = min(chunk_rows, rows)
    for number, (span, found) in enumerate(chunks(cluster, scan.left, scan.at, rows=chunk_rows)):
        if number and (number >= parts or count + found > rows):
            break
        count += found
        left = without(left, [span])
    return replace(scan, left=left, done=scan.done + count) if left else None


def without(spans: Sequence[Span], others: Sequence[Span]) -> tuple[Span, ...]:
    """Return *spans* without the parts that are in *others*, in the same order."""
    for other in others:
        spans = [rest for span in spans for rest in span.minus(other)]
    return tuple(spans)


def point(table: str, key: bytes) -> Span:
    """Return the span of one key."""
    return Span(table, key, key + b"\x00")
