"""Versions of a table that share a transaction, which has altered the table between its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cdc_rangefeed_postgres.changes import NONE, Changes, Tuples
from cdc_rangefeed_postgres.fields import Ints
from cdc_rangefeed_postgres.keys import Folded, fold
from cdc_rangefeed_postgres.relations import shape
from cdc_rangefeed_postgres.shared_keys import SharedKeys
from cdc_rangefeed_postgres.types import TableVersion
from cdc_rangefeed_postgres.unchanged_toast import fill_from_earlier, require_keys


def folded_versions(
    parts: Iterable[Changes], transactions: Ints, shared: SharedKeys
) -> Iterator[tuple[Changes, Folded]]:
    """Yield the changes of each version, and those of them that are rows.

    *parts* are the versions of one table in log order, *transactions* has the transaction of each message. Changes are
    yielded with those of earlier versions before them, to which `Folded.firsts` may point: in the columns with the same
    names, and null where there is none, or its value has no counterpart in another type.
    """
    run: list[_Joined] = []
    for part in parts:
        if part.new.unchanged:
            require_keys(part)
        joined = _Joined.of(run[-1], part, transactions) if run else None
        if joined is None:
            yield from _folded(run, transactions, shared)
            run, joined = [], _Joined(part, 0)
        if joined.changes.new.unchanged:
            fill_from_earlier(joined.changes)
        run.append(joined)
    yield from _folded(run, transactions, shared)


@dataclass(frozen=True, slots=True)
class _Joined:
    """The changes of a version after those of the versions before it."""

    changes: Changes
    known: int
    """From which row on the columns of a version are surely those of this one."""

    @classmethod
    def of(cls, earlier: _Joined, later: Changes, transactions: Ints) -> _Joined | None:
        """Return *earlier* and *later* joined. None when they share no transaction, or no key."""
        before = earlier.changes
        keys = [_converted(old, new.type) for old, new in zip(before.keys, later.keys, strict=False)]
        shared = transactions[before.messages[-1]] == transactions[later.messages[0]]
        if not shared or any(key is None for key in keys) or not _have_same_key(before.version, later.version):
            return None
        # Columns that were dropped or renamed may have left their names to other ones.
        known = shape(later.version.columns)[: len(before.version.columns)] == shape(before.version.columns)
        new = _JoinedTuples(before, before.new, later, later.new, known=known)
        old = _JoinedTuples(before, before.old, later, later.old, known=known)
        changes = Changes(
            version=later.version,
            new=new,
            old=old,
            messages=np.concatenate([before.messages, later.messages]),
            ops=np.concatenate([before.ops, later.ops]),
            after=_following(before.after, later.after, len(before.new)),
            before=_following(before.before, later.before, len(before.old)),
            keys=tuple(pa.concat_arrays(pair) for pair in zip(keys, later.keys, strict=True)),
            whole=before.whole and later.whole,
        )
        return cls(changes, earlier.known if known else len(before.ops))


class _JoinedTuples(Tuples):
    """Tuples of an earlier version in the columns of a later one, and then those of the later one.

    Unless the columns of the earlier version are *known*, unchanged values are not filled from it.
    """

    def __init__(self, before: Changes, earlier: Tuples, changes: Changes, later: Tuples, *, known: bool) -> None:
        super().__init__(later.fields, ())
        names = [column.name for column in before.version.columns]
        self._earlier, self._later = earlier, later
        self._sources = [
            names.index(column.name) if column.name in names else None for column in changes.version.columns
        ]
        self.unchanged = {}
        for index, mask in later.unchanged.items():
            source = self._sources[index] if known else None
            found = np.full(len(earlier), source is None)
            if source is not None:
                found = earlier.unchanged.get(source, found)
            self.unchanged[index] = np.append(found, mask)

    def __len__(self) -> int:
        return len(self._earlier) + len(self._later)

    def column(self, index: int) -> pa.Array:
        if index not in self._columns:
            column, source = self._later.column(index), self._sources[index]
            before = None if source is None else _converted(self._earlier.column(source), column.type)
            self._columns[index] = pa.concat_arrays(
                [pa.nulls(len(self._earlier), column.type) if before is None else before, column]
            )
        return self._columns[index]


def _folded(run: Sequence[_Joined], transactions: Ints, shared: SharedKeys) -> Iterator[tuple[Changes, Folded]]:
    if not run:
        return
    changes = run[-1].changes
    if changes.version.deferrable and changes.whole:
        # Those of all versions, unless one of them may have left its name to another.
        known = 0 if run[-1].known else len(run[0].changes.version.columns)
        folded = shared.fold(changes, transactions[changes.messages], known)
    else:
        folded = fold(changes.keys, transactions[changes.messages], changes.ops)
    start = 0
    for joined in run:
        end = len(joined.changes.ops)
        part = folded.between(start, end)
        yield joined.changes, replace(part, replaced=part.replaced | (part.firsts < joined.known))
        start = end


def _following(before: Ints, after: Ints, count: int) -> Ints:
    """Return the indices of tuples, of which there are *count* before those of *after*."""
    return np.append(before, np.where(after == NONE, NONE, after + count))


def _have_same_key(earlier: TableVersion, later: TableVersion) -> bool:
    """Return whether both have the same key. A column of it may have been renamed: then it has its old place."""
    return earlier.schema.primary_key == later.schema.primary_key or _key_places(earlier) == _key_places(later)


def _key_places(version: TableVersion) -> list[int]:
    names = [column.name for column in version.columns]
    return [names.index(name) for name in version.schema.primary_key]


def _converted(array: pa.Array, type_: pa.DataType) -> pa.Array | None:
    """Return *array* in another type; None where a value has no counterpart in it."""
    try:
        return array.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
