"""Compares the two sides of an audit, one partition after the other: counts and sums of hashes first, rows second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_core.auditing.layout import KEY_HASHES, Hashes, Layout, hashed, key_of, value_of
from cdc_core.auditing.spill import PARTITIONS, Spill
from cdc_core.auditing.versions import known, later, reduced, same
from cdc_core.rows import shown_value
from cdc_core.schema import TableName
from cdc_core.timestamp import Timestamp

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_SEED = 13
_MAX_BYTES = 256 << 20
"""Of one partition in memory, uncompressed. A larger one is divided again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Compares the rows of one table. `figures` are of all tables and count what was compared so far.

    A row of the source must be the same as the destination's newest version up to `cut`, or as a later one: it was read
    at a moment in between. `nulls_delete`: whether a deleted row is delivered as its key and nulls.
    """

    layout: Layout
    cut: Timestamp
    figures: Figures
    most_shown: int
    nulls_delete: bool = False
    most_bytes: int = _MAX_BYTES

    def differences(self, source: Spill, destination: Spill) -> Iterator[Difference]:
        """Yield the rows that are not the same, as long as fewer than `most_shown` were found. All are counted."""
        for partition in range(PARTITIONS):
            larger = max(source.bytes_of(partition), destination.bytes_of(partition)) > self.most_bytes
            parts = (source.split(partition), destination.split(partition)) if larger else (None, None)
            if parts[0] is not None and parts[1] is not None:
                yield from self.differences(parts[0], parts[1])
                continue
            yield from self._of(
                _without_deleted(reduced(source.read(partition), self.layout, cut=None)),
                reduced(destination.read(partition), self.layout, cut=self.cut),
            )
            source.remove(partition)
            destination.remove(partition)

    def _of(self, source: pa.Table | None, destination: pa.Table | None) -> Iterator[Difference]:
        empty = source if destination is None else destination
        if empty is None:
            return
        rows = _Side(empty.slice(0, 0) if source is None else source, self.layout)
        versions = _Side(empty.slice(0, 0) if destination is None else destination, self.layout)
        self.figures.rows += len(rows)
        late = later(versions.table, self.cut)
        if not late.any() and rows.sums() == versions.sums():
            return
        yield from self._of_rows(rows, versions, late)

    def _of_rows(self, rows: _Side, versions: _Side, late: Bools) -> Iterator[Difference]:
        mine, theirs, keys = _numbered(rows, versions)
        row_of = np.full(keys, -1)
        row_of[mine] = np.arange(len(rows))
        found, wanted = row_of[theirs], ~versions.deleted
        matches = wanted & (found >= 0)
        pairs = np.flatnonzero(matches)
        matches[pairs] = versions.hashes[pairs] == rows.hashes[found[pairs]]
        gone = versions.deleted | (versions.all_null(self.layout) if self.nulls_delete else False)
        matches |= gone & (found < 0)
        right = np.zeros(keys, np.bool_)
        right[theirs[matches]] = True
        before = np.zeros(keys, np.bool_)
        before[theirs[~late]] = True
        right |= (row_of < 0) & ~before  # it was not there yet
        pairs = np.flatnonzero(wanted & (found >= 0) & ~right[theirs])
        if len(pairs) and (rows.has_unknown(self.layout) or versions.has_unknown(self.layout)):
            differ = self._differ(rows, found[pairs], versions, pairs)
            right[theirs[pairs[~np.logical_or.reduce(differ)]]] = True
        moved = np.zeros(keys, np.bool_)
        moved[theirs[late]] = True
        self.figures.changed += int(np.count_nonzero(moved & right))
        last = np.full(keys, -1)
        last[theirs] = np.arange(len(versions))
        yield from self._told(rows, versions, np.flatnonzero(~right), row_of, last)

    def _differ(self, rows: _Side, mine: Ints, versions: _Side, theirs: Ints) -> list[Bools]:
        """Return, by value column, which of these pairs are known to differ."""
        found = []
        for index in range(len(self.layout.values)):
            name = value_of(index)
            differs = ~same(
                rows.table.column(name).take(pa.array(mine)), versions.table.column(name).take(pa.array(theirs))
            )
            for side, places in ((rows, mine), (versions, theirs)):
                there = known(side.table, index)
                if there is not None:
                    differs &= there[places]
            found.append(differs)
        return found or [np.zeros(len(mine), np.bool_)]

    def _told(self, rows: _Side, versions: _Side, keys: Ints, row_of: Ints, last: Ints) -> Iterator[Difference]:
        figures = self.figures
        mine, theirs = row_of[keys], last[keys]
        missing = (theirs < 0) | versions.deleted[theirs] if len(versions) else np.ones(len(keys), np.bool_)
        extra = mine < 0
        room = max(0, self.most_shown - figures.differences)
        figures.extra += int(np.count_nonzero(extra))
        figures.missing += int(np.count_nonzero(missing & ~extra))
        figures.different += int(np.count_nonzero(~missing & ~extra))
        for row, version, lacks, surplus in zip(mine[:room], theirs[:room], missing, extra, strict=False):
            side, place = (versions, version) if surplus else (rows, row)
            finding = Finding.EXTRA if surplus else Finding.MISSING if lacks else Finding.DIFFERENT
            source, destination = {}, {}
            if finding is Finding.DIFFERENT:
                differ = self._differ(rows, np.array([row]), versions, np.array([version]))
                names = [index for index in range(len(self.layout.values)) if differ[index][0]]
                source, destination = self._values(rows, row, names), self._values(versions, version, names)
            yield Difference(
                table=self.layout.schema.name,
                finding=finding,
                key=self._key(side, place),
                source=source,
                destination=destination,
            )

    def _key(self, side: _Side, place: int) -> dict[str, Any]:
        names = self.layout.schema.primary_key
        return {name: shown_value(side.table.column(key_of(index))[place]) for index, name in enumerate(names)}

    def _values(self, side: _Side, place: int, indices: list[int]) -> dict[str, Any]:
        columns = self.layout.values
        return {columns[index].name: shown_value(side.table.column(value_of(index))[place]) for index in indices}


class _Side:
    """Reduced versions of one side, with a hash of the values of each."""

    def __init__(self, table: pa.Table, layout: Layout) -> None:
        self.table = table
        self.deleted: Bools = np.asarray(table.column("deleted"), np.bool_)
        columns = [_array(table, value_of(index)) for index in range(len(layout.values))]
        self.hashes: Hashes = hashed(columns, rows=len(table), seed=_SEED)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def sums(self) -> tuple[int, ...]:
        """Return how many rows there are, and sums of their hashes."""
        present = ~self.deleted
        first, second = (self.table.column(name).to_numpy()[present] for name in KEY_HASHES)
        each = self.hashes[present]
        mixed = (first ^ (each * np.uint64(0x9E3779B97F4A7C15))) * (second | np.uint64(1))
        return (len(each), int(mixed.sum()), int((mixed ^ (mixed >> np.uint64(29))).sum()))

    def has_unknown(self, layout: Layout) -> bool:
        return any(known(self.table, index) is not None for index in range(len(layout.values)))

    def all_null(self, layout: Layout) -> Bools:
        """Return where all values are null."""
        null = np.ones(len(self), np.bool_)
        for index in range(len(layout.values)):
            null &= np.asarray(self.table.column(value_of(index)).is_null())
        return null


def _numbered(rows: _Side, versions: _Side) -> tuple[Ints, Ints, int]:
    """Return the number of the key of each row on either side, and how many keys there are."""
    hashes = [np.concatenate([side.table.column(name).to_numpy() for side in (rows, versions)]) for name in KEY_HASHES]
    order = np.lexsort(hashes)
    firsts = np.zeros(len(order), np.bool_)
    firsts[:1] = True
    for each in hashes:
        firsts[1:] |= each[order][1:] != each[order][:-1]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(firsts) - 1
    return numbers[: len(rows)], numbers[len(rows) :], int(np.count_nonzero(firsts))


def _without_deleted(versions: pa.Table | None) -> pa.Table | None:
    if versions is None:
        return None
    return versions.filter(pa.array(~np.asarray(versions.column("deleted"), np.bool_))).combine_chunks()


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else (pa.array([], column.type))
    )


class Finding(StrEnum):
    """What is wrong with a row at the destination."""

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One row that is not the same. Values are for messages, see `shown_value`."""

    table: TableName
    finding: Finding
    key: Mapping[str, Any]
    source: Mapping[str, Any] = field(default_factory=dict)
    destination: Mapping[str, Any] = field(default_factory=dict)
    """Of a row that is `different`: the columns that differ, with their values on either side."""


@dataclass(slots=True, kw_only=True)
class Figures:
    """What an audit has compared so far."""

    cut: Timestamp = Timestamp()
    """The mark that the destination was compared at."""
    upto: Timestamp = Timestamp()
    """The mark up to which changes may explain a row that differs at `cut`."""
    tables: int = 0
    rows: int = 0
    """Rows that the source has."""
    changed: int = 0
    """Rows that changed between the two marks: each is the same as one of its versions."""
    missing: int = 0
    extra: int = 0
    different: int = 0

    @property
    def differences(self) -> int:
        return self.missing + self.extra + self.different
