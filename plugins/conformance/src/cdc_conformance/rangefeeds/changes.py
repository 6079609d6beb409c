"""The rows that a rangefeed yielded, as Python values, and a consumer's view of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cdc_conformance.workload import Row, RowKey
from cdc_core import Op, RowBatch, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row that was read. `table` is the name as the user wrote it.

    `key` is the column `key`. `id` comes from `key`, `after` or `before`, so a broken key does not hide other faults.
    """

    table: str
    op: Op
    id: int | None
    key: Mapping[str, Any] | None
    updated: Timestamp
    after: Mapping[str, Any] | None
    before: Mapping[str, Any] | None
    mvcc: Timestamp | None
    version: int
    """The schema version of the row's batch."""
    step: int
    slice: int

    @property
    def row_key(self) -> RowKey:
        return self.table, -1 if self.id is None else self.id

    @property
    def deleted(self) -> bool:
        return self.op is Op.DELETE

    @property
    def n(self) -> int | None:
        """The number of this version of the row, from the column `n`; None for a delete."""
        return None if self.deleted or self.after is None else self.after.get("n")

    def __str__(self) -> str:
        what = "deleted" if self.deleted else f"n={self.n}"
        return f"{self.op.name.lower()} of {self.table} id={self.id} {what} updated={self.updated} in step {self.step}"


def changes_of(rows: RowBatch, *, table: str, step: int, index: int) -> Iterator[Change]:
    """Yield the rows of a batch in order."""
    for row in rows.batch.to_pylist():
        images = (row["key"], row["after"], row.get("before"))
        yield Change(
            table=table,
            op=Op(row["op"]),
            id=next((image["id"] for image in images if image and image.get("id") is not None), None),
            key=row["key"],
            updated=Timestamp(**row["updated"]),
            after=row["after"],
            before=row.get("before"),
            mvcc=None if row.get("mvcc") is None else Timestamp(**row["mvcc"]),
            version=rows.schema.version,
            step=step,
            slice=index,
        )


def newest(changes: Iterable[Change], *, until: Timestamp | None = None) -> dict[RowKey, Change]:
    """Return the change of each key with the greatest `updated`, at most *until*, deletes included."""
    found: dict[RowKey, Change] = {}
    for change in changes:
        if until is not None and change.updated > until:
            continue
        known = found.get(change.row_key)
        if known is None or change.updated >= known.updated:
            found[change.row_key] = change
    return found


def assert_all_there(changes: Iterable[Change], rows: Mapping[RowKey, Row]) -> None:
    """Assert that the newest change of each of *rows* is its current version."""
    __tracebackhide__ = True
    found = newest(changes)
    for key, row in rows.items():
        arrived = found.get(key)
        n = None if arrived is None else arrived.n
        assert n == row["n"], f"row {key} is at version {row['n']}, but the newest version that arrived is {arrived}"


def versions(changes: Iterable[Change]) -> dict[RowKey, list[int | None]]:
    """Return the versions of each key by `updated`, without repeats; None stands for a delete."""
    found: dict[RowKey, list[Change]] = {}
    for change in changes:
        found.setdefault(change.row_key, []).append(change)
    return {key: _distinct(sorted(several, key=lambda change: change.updated)) for key, several in found.items()}


def _distinct(changes: list[Change]) -> list[int | None]:
    numbers: list[int | None] = []
    for change in changes:
        if not numbers or numbers[-1] != change.n:
            numbers.append(change.n)
    return numbers
